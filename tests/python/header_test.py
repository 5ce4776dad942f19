# SPDX-License-Identifier: Apache-2.0
"""Every struct, enum, default and function of include/weir/weir.h that the package declares is as the header has it."""

import ctypes
import re
import unittest

from weir import _library as lib

from . import support

HEADER = re.sub(
    r"/\*.*?\*/", "", (support.ROOT / "include" / "weir" / "weir.h").read_text(encoding="utf-8"), flags=re.S
)
TYPES = {
    "size_t": ctypes.c_size_t,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "weir_select_callback": lib.SelectCallback,
    "weir_target_callback": lib.TargetCallback,
    "weir_trim_callback": lib.TrimCallback,
    "weir_progress_callback": lib.ProgressCallback,
    "weir_event_callback": lib.EventCallback,
}
STRUCTS = {
    "weir_model_options": lib.ModelOptions,
    "weir_model_info": lib.ModelInfo,
    "weir_slot": lib.Slot,
    "weir_view": lib.CView,
    "weir_policy": lib.CPolicy,
    "weir_session_options": lib.SessionOptions,
    "weir_session_info": lib.SessionInfo,
    "weir_generate_options": lib.GenerateOptions,
    "weir_counters": lib.CCounters,
    "weir_rule_options": lib.RuleOptions,
    "weir_rule": lib.CRule,
    "weir_event": lib.CEvent,
    "weir_rule_cost": lib.CRuleCost,
    "weir_recall_report": lib.RecallReport,
    "weir_passage": lib.CPassage,
}


def fields_of(struct):
    """[(name, type, is a pointer)] of a struct in the header."""
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", HEADER, re.S).group(1)
    out = []
    for line in body.split(";"):
        line = line.strip()
        if not line:
            continue
        found = re.match(r"(?:const )?(\w+)(.*)", line, re.S)
        for part in found.group(2).split(","):
            out.append((re.search(r"(\w+)$", part.strip()).group(1), found.group(1), "*" in part))
    return out


def is_pointer(kind):
    return kind in (ctypes.c_char_p, ctypes.c_void_p) or hasattr(kind, "contents")


class HeaderTest(unittest.TestCase):
    def test_structs(self):
        for name, struct in STRUCTS.items():
            wanted = fields_of(name)
            self.assertEqual([field for field, *_ in struct._fields_], [field for field, *_ in wanted], name)
            for (field, kind, *_), (_, declared, pointer) in zip(struct._fields_, wanted):
                with self.subTest(struct=name, field=field):
                    self.assertEqual(is_pointer(kind), pointer)
                    if not pointer:
                        self.assertIs(kind, TYPES[declared])

    def test_no_struct_is_forgotten(self):
        self.assertEqual(set(re.findall(r"typedef struct (\w+) \{", HEADER)), set(STRUCTS))

    def test_defaults(self):
        for name, struct in STRUCTS.items():
            found = re.search(rf"#define {name.upper()}_INIT\s*\\\s*\{{(.*?)\}}", HEADER, re.S)
            if found is None:
                continue
            values = [value.strip() for value in found.group(1).replace(f"sizeof({name})", "SIZE").split(",")]
            made = struct()
            self.assertEqual(len(values), len(struct._fields_), name)
            for (field, kind, *_), value in zip(struct._fields_[1:], values[1:]):
                given = getattr(made, field)
                with self.subTest(struct=name, field=field):
                    if value == "NULL":
                        self.assertFalse(bool(given))
                    else:
                        self.assertEqual(given, kind(float(value.rstrip("f")) if "." in value else int(value)).value)
            self.assertEqual(made.struct_bytes, ctypes.sizeof(struct))

    def test_functions(self):
        declared = {}
        for name, arguments in re.findall(r"WEIR_API weir_status (\w+)\((.*?)\);", HEADER, re.S):
            declared[name] = [argument.strip() for argument in arguments.split(",")]
        # Answers in one call are not used: the package takes them token by token.
        self.assertEqual(set(declared) - set(lib.PROTOTYPES), {"weir_session_ask", "weir_session_generate"})
        self.assertEqual(set(lib.PROTOTYPES) - set(declared), set())
        for name, types in lib.PROTOTYPES.items():
            self.assertEqual(len(types), len(declared[name]), name)
            for kind, argument in zip(types, declared[name]):
                with self.subTest(function=name, argument=argument):
                    self.assertEqual(is_pointer(kind), "*" in argument)
                    if "*" not in argument:
                        self.assertIs(kind, TYPES[argument.split()[-2]])

    def test_enums(self):
        def values(prefixed):
            body = re.search(rf"typedef enum {prefixed} \{{(.*?)\}} {prefixed};", HEADER, re.S).group(1)
            return {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", body)}

        self.assertEqual(list(values("weir_share").values()), list(range(len(lib.SHARES))))
        self.assertEqual([name[5:].lower() for name in values("weir_positions")], list(lib.POSITIONS))
        self.assertEqual(len(values("weir_rows")), len(lib.ROWS))
        self.assertEqual([name[5:].lower() for name in values("weir_reduce")], list(lib.REDUCES))
        self.assertEqual([name[5:].lower() for name in values("weir_vector")][1:], list(lib.VECTORS)[1:])
        self.assertEqual(len(values("weir_end")), len(lib.ENDS))
        self.assertEqual([name[5:].lower() for name in values("weir_rule_state")], list(lib.RULE_STATES))
        from weir import errors

        for name, status in values("weir_status").items():
            if status:
                kind = "".join(word.capitalize() for word in name[5:].split("_")) + "Error"
                self.assertEqual(getattr(errors, kind).status, status)
        flags = re.search(
            r"enum \{\s*WEIR_PINNED = (\d+),\s*WEIR_END_OF_PROMPT = (\d+),\s*WEIR_SPECIAL = (\d+)", HEADER
        )
        self.assertEqual([int(n) for n in flags.groups()], [lib.PINNED, lib.END_OF_PROMPT, lib.SPECIAL])
        self.assertEqual(int(re.search(r"#define WEIR_ABI (\d+)", HEADER).group(1)), lib.ABI)


if __name__ == "__main__":
    unittest.main()
