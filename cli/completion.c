/* SPDX-License-Identifier: MIT */
/* reveille completion: shell completions, generated from the tables of the commands. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "commands.h"

const command_spec completion_spec = {
    .name = "completion",
    .summary = "print the completion of a shell",
    .usage = "bash|zsh|fish",
    .description =
        "Prints a script with which a shell completes commands, options, their values and file "
        "names when you press Tab. Packages install these scripts; use this command where they do "
        "not, such as after `pip install`.",
    .options = (const option_spec[]){{.kind = OPTION_END}},
    .exits = (const text_entry[]){{"0", "printed"}, {"2", "an unknown shell"}, {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"source <(reveille completion bash)", "For this shell; in ~/.bashrc, for all."},
            {"reveille completion zsh > ~/.zfunc/_reveille",
             "For zsh, where `fpath` has that folder before `compinit` runs."},
            {"reveille completion fish > ~/.config/fish/completions/reveille.fish", "For fish."},
            {NULL, NULL}},
    .see_also = "reveille(1), bash(1), zsh(1), fish(1)",
};

/* ---- Words, for all shells ---- */

static void put_spaced(const char *word)
{
    printf(" %s", word);
}

static void put_commands(void)
{
    for (const subcommand *each = commands; each->spec != NULL; each++)
        put_spaced(each->spec->name);
}

static void put_profiles(void)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    for (size_t i = 0; rvl_profile_get(i, &profile) == RVL_OK; i++)
        put_spaced(profile.name);
}

static bool has_words(const option_spec *option)
{
    char word[OPTION_WORDS_BYTES];
    return option->kind == OPTION_DEVICE ||
           (option->value != NULL && strncmp(option->value, "DEVICE", 6) == 0) ||
           (option->value != NULL && options_word_at(option->value, 0, word));
}

/* Prints the known values of an option, each after a space. */
static void put_values(const option_spec *option)
{
    char word[OPTION_WORDS_BYTES];
    if (option->kind == OPTION_DEVICE || strncmp(option->value, "DEVICE", 6) == 0) {
        put_profiles();
        return;
    }
    for (size_t i = 0; options_word_at(option->value, i, word); i++) {
        word[strcspn(word, ":")] = '\0'; /* complete fsdp:N as fsdp */
        put_spaced(word);
    }
}

static bool names_file(const option_spec *option)
{
    return option->kind == OPTION_FILE || option->kind == OPTION_DOCUMENT;
}

/* Prints the operands of a command. false: they are files, or the command takes none. */
static bool put_operands(const command_spec *spec)
{
    if (spec == &completion_spec)
        fputs(" bash zsh fish", stdout);
    else if (spec == &manual_spec)
        put_commands();
    else
        return false;
    return true;
}

static void put_option_names(const command_spec *spec)
{
    const option_spec *option;
    for (size_t i = 0; (option = options_at(spec, i)) != NULL; i++) {
        if (option->kind == OPTION_GROUP)
            continue;
        if (option->letter != '\0')
            printf(" -%c", option->letter);
        printf(" --%s", option->name);
    }
}

/* ---- bash ---- */

static void print_bash_values(const command_spec *spec)
{
    const option_spec *option;
    for (size_t i = 0; (option = options_at(spec, i)) != NULL; i++) {
        if (option->kind == OPTION_GROUP || option->value == NULL)
            continue;
        fputs("    ", stdout);
        if (option->letter != '\0')
            printf("'%s -%c' | ", spec->name, option->letter);
        printf("'%s --%s'%s) ", spec->name, option->name, option->optional ? "=" : "");
        if (names_file(option)) {
            printf("_reveille_files \"$cur\" '%s'", option->files != NULL ? option->files : "");
        } else if (has_words(option)) {
            fputs("_reveille_words \"$cur\"", stdout);
            put_values(option);
        }
        puts(names_file(option) || has_words(option) ? "; return ;;" : "return ;;");
    }
}

static void print_bash_rules(void)
{
    puts("    case \"$command $prev\" in");
    for (const subcommand *each = commands; each->spec != NULL; each++)
        print_bash_values(each->spec);
    puts("    esac");
}

static void print_bash_others(void)
{
    puts("    if [[ $cur == -* ]]; then\n        case $command in");
    for (const subcommand *each = commands; each->spec != NULL; each++) {
        printf("        %s) _reveille_words \"$cur\"", each->spec->name);
        put_option_names(each->spec);
        puts(" ;;");
    }
    puts("        esac\n        return\n    fi\n    case $command in");
    fputs("    help) _reveille_words \"$cur\"", stdout);
    put_commands();
    puts(" ;;");
    for (const subcommand *each = commands; each->spec != NULL; each++) {
        const command_spec *spec = each->spec;
        printf("    %s) ", spec->name);
        if (spec == &completion_spec || spec == &manual_spec) {
            fputs("_reveille_words \"$cur\"", stdout);
            put_operands(spec);
        } else if (spec->command_follows) {
            fputs("mapfile -t COMPREPLY < <(compgen -c -f -- \"$cur\" | sort -u)", stdout);
        } else if (spec->operands != NULL) {
            printf("_reveille_files \"$cur\" '%s'", spec->operands);
        } else {
            fputs(":", stdout);
        }
        puts(" ;;");
    }
    puts("    esac");
}

static void print_bash(void)
{
    puts("# bash completion of reveille, made by `reveille completion bash`\n"
         "\n"
         "_reveille_words() {\n"
         "    local cur=$1\n"
         "    shift\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$*\" -- \"$cur\")\n"
         "}\n"
         "\n"
         "# Folders, and files with one of the endings, if any are named.\n"
         "_reveille_files() {\n"
         "    local file ending\n"
         "    while IFS= read -r file; do\n"
         "        if [[ -z $2 || -d $file ]]; then\n"
         "            COMPREPLY+=(\"$file\")\n"
         "            continue\n"
         "        fi\n"
         "        for ending in $2; do\n"
         "            if [[ $file == *.\"$ending\" ]]; then\n"
         "                COMPREPLY+=(\"$file\")\n"
         "                break\n"
         "            fi\n"
         "        done\n"
         "    done < <(compgen -f -- \"$1\")\n"
         "}\n"
         "\n"
         "_reveille() {\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "    local command=${COMP_WORDS[1]}\n"
         "    COMPREPLY=()\n"
         "    # \"--wake=staged\" comes as three words. A value that may be left out has its =.\n"
         "    local optional='@(--color|--progress|--json|--markdown)'\n"
         "    if [[ $cur == = ]]; then\n"
         "        cur=\n"
         "        [[ $prev == $optional ]] && prev+==\n"
         "    elif [[ $prev == = ]]; then\n"
         "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "        [[ $prev == $optional ]] && prev+==\n"
         "    fi\n"
         "    if ((COMP_CWORD == 1)); then");
    fputs("        _reveille_words \"$cur\" help", stdout);
    put_commands();
    put_option_names(&reveille_spec);
    puts("\n        return\n    fi");
    print_bash_rules();
    print_bash_others();
    puts("}\n"
         "\n"
         "complete -o filenames -F _reveille reveille");
}

/* ---- zsh ---- */

/* Prints text inside single quotes. escaped: characters with a meaning to _arguments. */
static void put_zsh(const char *text, const char *escaped)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr(escaped, *text) != NULL)
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void print_zsh_files(const char *endings)
{
    if (endings == NULL || *endings == '\0') {
        fputs("_files", stdout);
        return;
    }
    /* zsh would read parentheses around one word as glob qualifiers. */
    bool several = strchr(endings, ' ') != NULL;
    printf("_files -g \"*.%s", several ? "(" : "");
    for (const char *at = endings; *at != '\0'; at++)
        putchar(*at == ' ' ? '|' : *at);
    fputs(several ? ")\"" : "\"", stdout);
}

static void print_zsh_option(const option_spec *option)
{
    const char *equals = option->value == NULL ? "" : (option->optional ? "=-" : "=");
    fputs("            ", stdout);
    if (option->letter != '\0' && option->repeated)
        printf("'*'{-%c,--%s%s}'", option->letter, option->name, equals);
    else if (option->letter != '\0')
        printf("'(-%c --%s)'{-%c,--%s%s}'", option->letter, option->name, option->letter,
               option->name, equals);
    else
        printf("'%s--%s%s", option->repeated ? "*" : "", option->name, equals);
    putchar('[');
    put_zsh(option->help, "[]\\");
    putchar(']');
    if (option->value != NULL) {
        fputs(option->optional ? "::" : ":", stdout);
        put_zsh(option->value, ":\\");
        putchar(':');
        if (names_file(option)) {
            print_zsh_files(option->files);
        } else if (has_words(option)) {
            putchar('(');
            put_values(option);
            putchar(')');
        } else {
            putchar(' ');
        }
    }
    puts("' \\");
}

static void print_zsh_command(const command_spec *spec)
{
    const option_spec *option;
    printf("        %s)\n            _arguments -S \\\n", spec->name);
    for (size_t i = 0; (option = options_at(spec, i)) != NULL; i++) {
        if (option->kind != OPTION_GROUP)
            print_zsh_option(option);
    }
    fputs("            ", stdout);
    if (spec == &completion_spec || spec == &manual_spec) {
        fputs("'1:word:(", stdout);
        put_operands(spec);
        fputs(")'", stdout);
    } else if (spec->command_follows) {
        fputs("'(-)1:command: _command_names -e' '*::argument:_normal'", stdout);
    } else if (spec->operands != NULL) {
        fputs("'*:file:", stdout);
        print_zsh_files(spec->operands);
        fputs("'", stdout);
    }
    puts("\n            ;;");
}

static void print_zsh(void)
{
    puts("#compdef reveille\n"
         "# zsh completion of reveille, made by `reveille completion zsh`\n"
         "\n"
         "_reveille() {\n"
         "    local curcontext=$curcontext state state_descr line\n"
         "    typeset -A opt_args\n"
         "    _arguments -C '(- *)'{-h,--help}'[print help]' "
         "'(- *)'{-V,--version}'[print the version]' \\\n"
         "        '1:command:->command' '*::argument:->arguments'\n"
         "    case $state in\n"
         "    command)\n"
         "        local -a names\n"
         "        names=('help:print the help of a command'");
    for (const subcommand *each = commands; each->spec != NULL; each++) {
        printf("            '%s:", each->spec->name);
        put_zsh(each->spec->summary, ":\\");
        puts("'");
    }
    puts("        )\n"
         "        _describe command names\n"
         "        ;;\n"
         "    arguments)\n"
         "        case $words[1] in");
    fputs("        help) _arguments '1:command:(", stdout);
    put_commands();
    puts(")' ;;");
    for (const subcommand *each = commands; each->spec != NULL; each++)
        print_zsh_command(each->spec);
    puts("        esac\n"
         "        ;;\n"
         "    esac\n"
         "}\n"
         "\n"
         "if [[ $funcstack[1] == _reveille ]]; then\n"
         "    _reveille \"$@\"\n"
         "else\n"
         "    compdef _reveille reveille\n"
         "fi");
}

/* ---- fish ---- */

static void put_fish(const char *text)
{
    putchar('\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

static void print_fish_option(const command_spec *spec, const option_spec *option)
{
    printf("complete -c reveille -n '__reveille_runs %s'", spec->name);
    if (option->letter != '\0')
        printf(" -s %c", option->letter);
    printf(" -l %s", option->name);
    if (names_file(option))
        fputs(option->optional ? " -F" : " -r -F", stdout);
    else if (option->value != NULL)
        fputs(option->optional ? " -f" : " -x", stdout);
    if (option->value != NULL && has_words(option)) {
        fputs(" -a '", stdout);
        put_values(option);
        putchar('\'');
    }
    fputs(" -d ", stdout);
    put_fish(option->help);
    puts("");
}

static void print_fish_command(const command_spec *spec)
{
    const option_spec *option;
    printf("complete -c reveille -n __reveille_begins -a %s -d ", spec->name);
    put_fish(spec->summary);
    puts("");
    for (size_t i = 0; (option = options_at(spec, i)) != NULL; i++) {
        if (option->kind != OPTION_GROUP)
            print_fish_option(spec, option);
    }
    if (spec == &completion_spec || spec == &manual_spec) {
        printf("complete -c reveille -n '__reveille_runs %s' -a '", spec->name);
        put_operands(spec);
        puts("'");
    } else if (spec->command_follows) {
        printf("complete -c reveille -n '__reveille_runs %s' "
               "-a '(__fish_complete_subcommand --fcs-skip=2)'\n",
               spec->name);
    } else if (spec->operands != NULL) {
        printf("complete -c reveille -n '__reveille_runs %s' -F\n", spec->name);
    }
}

static void print_fish(void)
{
    const option_spec *option;
    puts("# fish completion of reveille, made by `reveille completion fish`\n"
         "\n"
         "function __reveille_begins\n"
         "    test (count (commandline -opc)) -eq 1\n"
         "end\n"
         "\n"
         "function __reveille_runs\n"
         "    set -l words (commandline -opc)\n"
         "    test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
         "end\n"
         "\n"
         "complete -c reveille -f");
    for (size_t i = 0; (option = options_at(&reveille_spec, i)) != NULL; i++)
        printf("complete -c reveille -n __reveille_begins -s %c -l %s -d '%s'\n", option->letter,
               option->name, option->help);
    puts("complete -c reveille -n __reveille_begins -a help -d 'print the help of a command'");
    fputs("complete -c reveille -n '__reveille_runs help' -a '", stdout);
    put_commands();
    puts("'");
    for (const subcommand *each = commands; each->spec != NULL; each++)
        print_fish_command(each->spec);
}

/* ---- The command ---- */

int command_completion(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    option_line line;
    if (!options_parse(&completion_spec, argc, argv, NULL, &line))
        return line.status;
    for (size_t i = 0; argc - line.first == 1 && i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(shells[i].name, argv[line.first]) == 0) {
            shells[i].print();
            return EXIT_FITS;
        }
    }
    return options_refuse(&completion_spec, "completion: name one shell: bash, zsh or fish");
}
