/* SPDX-License-Identifier: MIT */
/*
 * Reads a file with toml++, and converts its tree to jansson's, with keys in the order of the file.
 * Refuses values that JSON does not have, and gives their place. This is the only C++ file: no
 * exception leaves it.
 */
#include "check/toml.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/*
 * toml++ 3.3.0 has assertions that a bad file can break, such as one with "[=". With NDEBUG, it
 * makes the compiler assume their conditions. After each assertion it checks the condition again,
 * and refuses the file. So we neither assert nor assume anything.
 */
#undef NDEBUG
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

namespace
{

/* Dots in keys nest tables, and toml++ destroys trees by recursion, which could overflow the stack.
 */
constexpr std::ptrdiff_t dots_max = 4096;
constexpr std::size_t file_bytes_max = std::size_t{1} << 20;
constexpr int depth_max = 32;

struct releaser {
    void operator()(json_t *value) const noexcept
    {
        json_decref(value);
    }
    void operator()(std::FILE *file) const noexcept
    {
        std::fclose(file);
    }
};
using json = std::unique_ptr<json_t, releaser>;

/* Why a file is refused, and where. Line 0: no place in the file. */
struct refusal {
    toml::source_position at;
    std::string what;
};

json made(json_t *value)
{
    if (value == nullptr)
        throw std::bad_alloc();
    return json(value);
}

/* ---- Characters ---- */

/*
 * toml++ 3.3.0 finds white space by a table lookup, which has undefined behaviour for most
 * characters from U+0080 to U+FFFF. So we hide these characters from it: hide() maps each to the
 * same code in plane 15, where characters have no meaning, and take_back() reverses that in the
 * texts that toml++ returns.
 */
constexpr unsigned char plane_15 = 0xf3; /* the first byte of its characters, from 0xf3 0xb0 on */

bool is_tail(std::string_view text, std::size_t at, std::size_t count)
{
    for (std::size_t i = at; i < at + count; i++) {
        if (i >= text.size() || (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80)
            return false;
    }
    return true;
}

void append(std::string &to, unsigned first, unsigned rest, int count)
{
    to += static_cast<char>(first);
    while (count-- > 0)
        to += static_cast<char>(0x80 | (rest >> (6 * count) & 0x3f));
}

/* Keeps bytes that are not UTF-8. toml++ refuses the first of them. */
std::string hide(std::string_view text)
{
    std::string hidden;
    for (std::size_t at = 0; at < text.size();) {
        unsigned first = static_cast<unsigned char>(text[at]);
        std::size_t more = first >= 0xc2 && first < 0xe0 ? 1 : (first & 0xf0) == 0xe0 ? 2 : 0;
        if (more == 0 || !is_tail(text, at + 1, more)) {
            hidden += text[at++];
            continue;
        }
        unsigned code = more == 1 ? first & 0x1f : first & 0x0f;
        for (std::size_t i = 1; i <= more; i++)
            code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
        bool scalar = (code >= 0x800 || more == 1) && (code < 0xd800 || code > 0xdfff);
        if (scalar)
            append(hidden, plane_15, 0xf0000 | code, 3);
        else
            hidden.append(text.substr(at, more + 1));
        at += more + 1;
    }
    return hidden;
}

std::string take_back(std::string_view hidden)
{
    std::string text;
    for (std::size_t at = 0; at < hidden.size(); at++) {
        if (static_cast<unsigned char>(hidden[at]) != plane_15 || !is_tail(hidden, at + 1, 3) ||
            static_cast<unsigned char>(hidden[at + 1]) < 0xb0) {
            text += hidden[at];
            continue;
        }
        unsigned code = 0;
        for (std::size_t i = 1; i <= 3; i++)
            code = code << 6 | (static_cast<unsigned char>(hidden[at + i]) & 0x3fu);
        code &= 0xffff;
        if (code < 0x800)
            append(text, 0xc0 | code >> 6, code, 1);
        else
            append(text, 0xe0 | code >> 12, code, 2);
        at += 3;
    }
    return text;
}

/* Whether a text has characters of plane 15, as such or as \U000Fxxxx: take_back() would change
 * them. */
bool has_plane_15(std::string_view text)
{
    for (std::size_t at = text.find('\xf3'); at != std::string_view::npos;
         at = text.find('\xf3', at + 1)) {
        if (at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) >= 0xb0)
            return true;
    }
    return text.find("\\U000F") != std::string_view::npos ||
           text.find("\\U000f") != std::string_view::npos;
}

/* ---- Values ---- */

[[noreturn]] void refuse(const toml::source_region &place, std::string_view key, const char *what)
{
    throw refusal{place.begin, "\"" + take_back(key) + "\": " + what};
}

void check_text(const toml::source_region &place, std::string_view key, std::string_view text)
{
    if (text.find('\0') != std::string_view::npos)
        refuse(place, key.substr(0, key.find('\0')), "a zero byte in a string");
}

/* Names a key by its object's address, which is valid while the file's tree exists. */
std::string place_name(const json_t *object, std::string_view key)
{
    char address[32];
    std::snprintf(address, sizeof address, "%p ", static_cast<const void *>(object));
    return address + std::string(key);
}

void keep_place(json_t *places, const json_t *object, const std::string &key,
                toml::source_position at)
{
    json_t *place = json_pack("[i, i]", static_cast<int>(at.line), static_cast<int>(at.column));
    if (json_object_set_new_nocheck(places, place_name(object, key).c_str(), place) != 0)
        throw std::bad_alloc();
}

json convert(const toml::node &node, std::string_view key, int depth, json_t *places);

json convert_table(const toml::table &table, int depth, json_t *places)
{
    using entry = std::pair<const toml::key *, const toml::node *>;
    std::vector<entry> entries;
    for (const auto &[key, node] : table)
        entries.emplace_back(&key, &node);
    std::sort(entries.begin(), entries.end(), [](const entry &left, const entry &right) {
        return left.first->source().begin < right.first->source().begin;
    });
    json object = made(json_object());
    for (const auto &[key, node] : entries) {
        check_text(key->source(), key->str(), key->str());
        json value = convert(*node, key->str(), depth + 1, places);
        std::string name = take_back(key->str());
        if (json_object_set_new_nocheck(object.get(), name.c_str(), value.release()) != 0)
            throw std::bad_alloc();
        keep_place(places, object.get(), name, key->source().begin);
    }
    return object;
}

json convert_array(const toml::array &array, std::string_view key, int depth, json_t *places)
{
    json list = made(json_array());
    for (const toml::node &item : array) {
        if (json_array_append_new(list.get(), convert(item, key, depth + 1, places).release()) != 0)
            throw std::bad_alloc();
    }
    return list;
}

json convert(const toml::node &node, std::string_view key, int depth, json_t *places)
{
    if (depth > depth_max)
        refuse(node.source(), key, "tables or lists in far too many others");
    if (const toml::table *table = node.as_table())
        return convert_table(*table, depth, places);
    if (const toml::array *array = node.as_array())
        return convert_array(*array, key, depth, places);
    if (const auto *text = node.as_string()) {
        check_text(node.source(), key, text->get());
        std::string value = take_back(text->get());
        return made(json_stringn_nocheck(value.data(), value.size()));
    }
    if (const auto *number = node.as_integer())
        return made(json_integer(number->get()));
    if (const auto *truth = node.as_boolean())
        return made(json_boolean(truth->get()));
    const auto *real = node.as_floating_point();
    if (real == nullptr)
        refuse(node.source(), key, "a date or time, and nothing in a check is one");
    if (!std::isfinite(real->get()))
        refuse(node.source(), key, "neither infinite numbers nor nan are taken");
    return made(json_real(real->get()));
}

/* ---- File ---- */

std::string read_text(const char *path)
{
    std::unique_ptr<std::FILE, releaser> file(std::fopen(path, "rbe"));
    if (file == nullptr)
        throw refusal{{}, std::strerror(errno)};
    std::string text;
    char part[4096];
    std::size_t bytes;
    while (text.size() <= file_bytes_max &&
           (bytes = std::fread(part, 1, sizeof part, file.get())) > 0)
        text.append(part, bytes);
    if (std::ferror(file.get()) != 0)
        throw refusal{{}, std::strerror(errno)};
    if (text.size() > file_bytes_max)
        throw refusal{{}, "more than 1 MiB of TOML: write so many checks as JSON"};
    if (std::count(text.begin(), text.end(), '.') > dots_max)
        throw refusal{{}, "more than 4096 dots in TOML: write so many checks as JSON"};
    if (has_plane_15(text))
        throw refusal{{}, "characters of private use (U+F0000 to U+FFFFF) are not taken"};
    return text;
}

json load(const char *path, json_t *places)
{
    try {
        std::string text = hide(read_text(path));
        return convert_table(toml::parse(std::string_view(text)), 0, places);
    } catch (const toml::parse_error &error) {
        throw refusal{error.source().begin, take_back(error.description())};
    }
}

void tell(json_error_t *error, toml::source_position at, const char *what) noexcept
{
    *error = json_error_t{};
    error->line = static_cast<int>(at.line);
    error->column = static_cast<int>(at.column);
    std::snprintf(error->text, sizeof error->text, "%s", what);
}

} // namespace

json_t *check_toml_load(const char *path, json_error_t *error_out, json_t **places_out)
{
    try {
        json places = made(json_object());
        json root = load(path, places.get());
        *places_out = places.release();
        return root.release();
    } catch (const refusal &refused) {
        tell(error_out, refused.at, refused.what.c_str());
    } catch (...) { /* std::bad_alloc: nothing else is thrown */
        tell(error_out, {}, "out of host memory");
    }
    return nullptr;
}

bool check_toml_place(const json_t *places, const json_t *object, const char *key, int *line_out,
                      int *column_out)
{
    try {
        const json_t *place = json_object_get(places, place_name(object, key).c_str());
        *line_out = static_cast<int>(json_integer_value(json_array_get(place, 0)));
        *column_out = static_cast<int>(json_integer_value(json_array_get(place, 1)));
        return place != nullptr;
    } catch (...) {
        return false;
    }
}
