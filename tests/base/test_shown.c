/* SPDX-License-Identifier: MIT */
/* Text from outside as each output shows it (base/shown.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/shown.h"

#define FORM_COUNT 5

/* As PLAIN, XML, JSON, GITHUB and GITHUB_PROPERTY show it. NULL: as the text is. */
typedef struct example {
    const char *text;
    const char *shown[FORM_COUNT];
} example;

static const example examples[] = {
    {"", {NULL}},
    {"train#2 50 \xc3\xa9 \xf0\x9f\x98\x80", {NULL}},
    {"a\nb\r", {"a%0Ab%0D", "a%0Ab%0D", "a\\u000ab\\u000d", "a%0Ab%0D", "a%0Ab%0D"}},
    {"\x1b[31m\t\x7f",
     {"%1B[31m%09%7F", "%1B[31m%09%7F", "\\u001b[31m\\u0009\\u007f", "%251B[31m%2509%257F",
      "%251B[31m%2509%257F"}},
    {"\n::error::x",
     {"%0A::error::x", "%0A::error::x", "\\u000a::error::x", "%0A::error::x",
      "%0A%3A%3Aerror%3A%3Ax"}},
    {"50%, 1:2", {NULL, NULL, NULL, "50%25, 1:2", "50%25%2C 1%3A2"}},
    {"<a & 'b' \"c\">\\",
     {NULL, "&#60;a &#38; &#39;b&#39; &#34;c&#34;&#62;\\",
      "\\u003ca \\u0026 'b' \\u0022c\\u0022\\u003e\\u005c", NULL, NULL}},
    /* C1 controls, of which terminals take U+009B for ESC [ */
    {"\xc2\x9b", {"%C2%9B", "%C2%9B", "\\u009b", "%25C2%259B", "%25C2%259B"}},
    {"\xc2\xa0", {NULL}},
    /* a line separator, and what turns the direction of writing */
    {"\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6",
     {"%E2%80%A8%E2%80%AE%E2%81%A6", "%E2%80%A8%E2%80%AE%E2%81%A6", "\\u2028\\u202e\\u2066",
      "%25E2%2580%25A8%25E2%2580%25AE%25E2%2581%25A6",
      "%25E2%2580%25A8%25E2%2580%25AE%25E2%2581%25A6"}},
    /* no characters: U+FFFE, U+FFFF, U+1FFFE */
    {"\xef\xbf\xbe\xef\xbf\xbf",
     {"%EF%BF%BE%EF%BF%BF", "%EF%BF%BE%EF%BF%BF", "\\ufffe\\uffff",
      "%25EF%25BF%25BE%25EF%25BF%25BF", "%25EF%25BF%25BE%25EF%25BF%25BF"}},
    {"\xf0\x9f\xbf\xbe",
     {"%F0%9F%BF%BE", "%F0%9F%BF%BE", "%F0%9F%BF%BE", "%25F0%259F%25BF%25BE",
      "%25F0%259F%25BF%25BE"}},
    {"\xef\xbf\xbd", {NULL}},
    /* no UTF-8: a stray byte, overlong, a surrogate, too large, cut off */
    {"\xc3\xa9\xff",
     {"\xc3\xa9%FF", "\xc3\xa9%FF", "\xc3\xa9%FF", "\xc3\xa9%25FF", "\xc3\xa9%25FF"}},
    {"\xc0\x8a", {"%C0%8A", "%C0%8A", "%C0%8A", "%25C0%258A", "%25C0%258A"}},
    {"\xed\xa0\x80", {"%ED%A0%80", "%ED%A0%80", "%ED%A0%80", "%25ED%25A0%2580", "%25ED%25A0%2580"}},
    {"\xf4\x90\x80\x80",
     {"%F4%90%80%80", "%F4%90%80%80", "%F4%90%80%80", "%25F4%2590%2580%2580",
      "%25F4%2590%2580%2580"}},
    {"\xe2\x82", {"%E2%82", "%E2%82", "%E2%82", "%25E2%2582", "%25E2%2582"}},
};

static void every_output_has_its_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        for (int form = 0; form < FORM_COUNT; form++) {
            const char *expected = examples[i].shown[form];
            char text[256];
            size_t length = rvli_shown((rvli_shown_as)form, examples[i].text, text, sizeof text);
            assert_string_equal(text, expected != NULL ? expected : examples[i].text);
            assert_int_equal(length, strlen(text));
        }
    }
}

static void what_is_harmless_stays_as_it_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        char once[256], twice[256];
        rvli_shown(RVLI_SHOWN_PLAIN, examples[i].text, once, sizeof once);
        rvli_shown(RVLI_SHOWN_PLAIN, once, twice, sizeof twice);
        assert_string_equal(twice, once);
    }
}

static void text_is_cut_between_characters(void **state)
{
    (void)state;
    static const char name[] = "a\n\xc3\xa9z";
    static const char *const cut[] = {
        "", "", "a", "a", "a", "a%0A", "a%0A", "a%0A\xc3\xa9", "a%0A\xc3\xa9z", "a%0A\xc3\xa9z"};
    assert_int_equal(rvli_shown(RVLI_SHOWN_PLAIN, name, NULL, 0), 7);
    for (size_t size = 1; size < sizeof cut / sizeof cut[0]; size++) {
        char text[16];
        memset(text, '!', sizeof text);
        assert_int_equal(rvli_shown(RVLI_SHOWN_PLAIN, name, text, size), 7);
        assert_string_equal(text, cut[size]);
        assert_int_equal(text[size], '!');
    }
}

/* Whatever the bytes are, no line is begun, no terminal is steered, and no mark-up ends. */
static void no_bytes_get_through(void **state)
{
    (void)state;
    static const char *const forbidden[FORM_COUNT] = {"", "<>&\"'", "<>&\"", "", ":,"};
    uint32_t random = 1;
    for (int round = 0; round < 100000; round++) {
        char text[9] = "", shown[512];
        for (size_t i = 0; i < sizeof text - 1; i++) {
            random = random * 1664525u + 1013904223u;
            text[i] = (char)(random >> 24);
        }
        for (int form = 0; form < FORM_COUNT; form++) {
            size_t length = rvli_shown((rvli_shown_as)form, text, shown, sizeof shown);
            assert_true(length < sizeof shown);
            for (const char *at = shown; *at != '\0'; at++) {
                bool control = (unsigned char)*at < 0x20 || *at == 0x7f;
                bool number = form == RVLI_SHOWN_XML && at[0] == '&' && at[1] == '#';
                assert_false(control || (strchr(forbidden[form], *at) != NULL && !number));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_output_has_its_form),
        cmocka_unit_test(what_is_harmless_stays_as_it_is),
        cmocka_unit_test(text_is_cut_between_characters),
        cmocka_unit_test(no_bytes_get_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
