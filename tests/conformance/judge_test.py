"""The judge's own judge: what `run` makes of outputs of iscsi-test-cu. `python3 -m unittest judge_test.py` runs it."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
PATH = str(pathlib.Path(__file__).with_name("run"))
LOADER = importlib.machinery.SourceFileLoader("conformance_run", PATH)
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("conformance_run", LOADER))
LOADER.exec_module(run)


def output(body, passed=1, failed=0, before=""):
    return (
        f"{before}\nSuite: Some\n  Test: Test ...{body}\n\n"
        "Run Summary:    Type  Total    Ran Passed Failed Inactive\n"
        "              suites      1      1    n/a      0        0\n"
        f"               tests      1      1      {passed}      {failed}        0\n"
        "             asserts      2      2      2      0      n/a\n"
    )


class Judge(unittest.TestCase):
    def verdict(self, text, code=0, name="Some.Test"):
        return run.judge(name, text, code)[0]

    def test_a_plain_pass_is_a_pass(self):
        self.assertEqual(self.verdict(output("\n    Send READ10\n    [OK] READ10\npassed    Send PRIN/READ_KEYS")), "pass")

    def test_passed_with_a_skipped_part_is_a_skip(self):
        text = output("\n    [OK] A\n    [SKIPPED] B is not implemented.\n    [OK] C\npassed")
        self.assertEqual(run.judge("Some.Test", text, 0), ("skip", "B is not implemented."))

    def test_skips_before_and_after_the_test_do_not_count(self):
        text = output("\n    Send A\npassed    Send PRIN\n    [SKIPPED] PRIN", before="    [SKIPPED] RSOC")
        self.assertEqual(self.verdict(text), "pass")

    def test_a_silent_skip_is_a_skip(self):
        self.assertEqual(self.verdict(output("passed    Send PRIN/READ_KEYS")), "skip")
        read_only = output("\n    Send MODESENSE6 (Expecting SUCCESS)\npassed")
        self.assertEqual(self.verdict(read_only, name="ModeSense6.Control-SWP"), "skip")
        did_work = output("\n    Send MODESENSE6 (Expecting SUCCESS)\n    Turn SWP ON\npassed")
        self.assertEqual(self.verdict(did_work, name="ModeSense6.Control-SWP"), "pass")

    def test_a_failed_assertion_is_a_failure_even_beside_a_skip(self):
        text = output("\n    [SKIPPED] B\nFAILED\n    1. test_x.c:98  - CU_ASSERT(x)", passed=0, failed=1)
        self.assertEqual(run.judge("Some.Test", text, 1), ("fail", "test_x.c:98"))

    def test_a_crash_is_a_failure(self):
        self.assertEqual(self.verdict("Suite: Some\n  Test: Test ...\n    Send READ10\n", code=-11), "fail")
        self.assertEqual(self.verdict(output("\n    [OK] A\npassed"), code=-6), "fail")

    def test_a_test_that_did_not_start_is_a_failure(self):
        self.assertEqual(self.verdict("Failed to connect to iscsi://...\n", code=255), "fail")

    def test_a_summary_of_no_tests_is_a_failure(self):
        self.assertEqual(self.verdict(output("passed").replace("tests      1      1", "tests      1      0")), "fail")


class Expectations(unittest.TestCase):
    LUNS = [{"export": "memory:1M"}, {"export": "memory:2M", "tests": ["B.b"]}]

    def table(self, *entries, total=3):
        expect = [{"verdict": v, "reason": r, "elsewhere": "z", "tests": t} for v, r, t in entries]
        return run.Table({"total": total, "lun": self.LUNS, "expect": expect})

    def test_what_is_not_listed_has_to_pass(self):
        table = self.table(("skip", "why", ["A.a"]))
        self.assertEqual([table.verdict("A.a"), table.verdict("A.b")], ["skip", "pass"])

    def test_a_listed_test_that_does_not_exist_is_trouble(self):
        table = self.table(("skip", "why", ["A.gone"]))
        self.assertEqual(
            table.troubles(["A.a", "A.b", "B.b"]), ["A.gone: listed in expected.toml, unknown to iscsi-test-cu"]
        )

    def test_a_test_missing_from_the_tool_is_trouble(self):
        self.assertEqual(len(self.table().troubles(["A.a", "B.b"])), 1)

    def test_an_entry_without_reason_or_twice_is_trouble(self):
        self.assertEqual(len(self.table(("fail", " ", ["A.a"])).troubles(["A.a", "A.b", "B.b"])), 1)
        twice = self.table(("fail", "x", ["A.a"]), ("skip", "y", ["A.a"]))
        self.assertEqual(len(twice.troubles(["A.a", "A.b", "B.b"])), 1)

    def test_tests_go_to_the_lun_that_lists_them(self):
        self.assertEqual([self.table().lun("A.a"), self.table().lun("B.b")], [0, 1])


if __name__ == "__main__":
    unittest.main()
