#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The workflow of examples/ci in an empty repository of somebody else: its steps run here, green and red.

    foreign.py SOURCE_DIR BUILD_DIR     with the command of a build, as if it came from the cache
    foreign.py SOURCE_DIR --build       the action builds it itself: minutes

What GitHub and GitLab do themselves is played: the checkout, the cache, expressions, and `gh`. Needs PyYAML, or exits with 77.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    print("SKIP: PyYAML is missing (on Debian: python3-yaml)")
    sys.exit(77)

SOURCE = pathlib.Path(sys.argv[1]).resolve()
BUILD = None if sys.argv[2] == "--build" else pathlib.Path(sys.argv[2]).resolve()
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
CHECKS = """schema = 1
baseline = "memory.baseline.json"

[[checks]]
name = "step"
model = "config.json"
settings = { train = "fsdp:8", mem-fraction = 0.8 }
devices = ["h100-80g"]
"""
LONGER = CHECKS.replace('"fsdp:8"', '"fsdp:8", seq-len = 8192')


def run(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


class Runner:
    """Plays a job: steps of a workflow, and those of the composite action that it uses."""

    def __init__(self, home, workspace, base, cache):
        self.home, self.workspace, self.cache = home, workspace, cache
        tools = home / "tools"
        tools.mkdir()
        (tools / "gh").write_text('#!/bin/sh\necho "$@" >>"$HOME/gh.words"\ncp memory.md "$HOME/gh.body"\n')
        (tools / "gh").chmod(0o755)
        self.paths = [str(tools)]
        self.environment = {**os.environ, "HOME": str(home), "GITHUB_ACTIONS": "true", "GITHUB_BASE_REF": base,
                            "GITHUB_STEP_SUMMARY": str(home / "summary")}  # fmt: skip
        self.names = {"github.event_name": "pull_request", "github.event.number": "7", "github.token": "secret",
                      "runner.os": "Linux", "runner.arch": "X64", "vars.REVEILLE_REPOSITORY": "them/reveille"}  # fmt: skip
        self.hits, self.kept, self.afterwards = [], [], []

    def value(self, expression):
        """What GitHub makes of an expression of names, strings, ==, && and ||."""
        def one(match):
            if match[1] is not None:
                return match[0]
            word = match[0]
            return "True" if word == "always" else repr(self.names.get(word, ""))

        code = re.sub(r"('[^']*')|[A-Za-z_][\w.-]*", one, expression.replace("()", ""))
        return eval(code.replace("&&", " and ").replace("||", " or "))  # pylint: disable=eval-used

    def filled(self, text):
        return EXPRESSION.sub(lambda match: str(self.value(match[1])), text)

    def steps(self, steps, action=None):
        """Runs them; returns the status of the first that fails."""
        status = 0
        for step in steps:
            condition = str(step.get("if", "")).removeprefix("${{").removesuffix("}}").strip()
            if (status and condition != "always()") or (condition and not self.value(condition)):
                continue
            failed = self.uses(step) if "uses" in step else self.shell(step, action)
            status = status or failed
        return status

    def job(self, steps):
        """The steps, and then what the cache keeps."""
        status = self.steps(steps)
        for made, kept in self.afterwards:
            shutil.copytree(made, kept, symlinks=True)
        return status

    def uses(self, step):
        given = {name: self.filled(str(text)) for name, text in step.get("with", {}).items()}
        kind = step["uses"].split("@")[0]
        if kind == "actions/checkout":
            if "path" in given:
                assert given["repository"] == "them/reveille" and given["ref"] == "main", given
                checkout(self.workspace / given["path"])
        elif kind == "actions/cache":
            folder = pathlib.Path(given["path"].replace("~", str(self.home)))
            self.hits.append((given["key"], (self.cache / given["key"]).exists()))
            if self.hits[-1][1]:
                shutil.copytree(self.cache / given["key"], folder, symlinks=True)
            else:
                self.afterwards.append((folder, self.cache / given["key"]))
        elif kind == "actions/upload-artifact":
            self.kept.append((self.workspace / given["path"]).is_file())
        elif kind.startswith("./"):
            return self.action(self.workspace / kind, given)
        else:
            raise AssertionError(f"not played: {kind}")
        return 0

    def action(self, folder, given):
        action = yaml.safe_load((folder / "action.yml").read_text())
        unknown = set(given) - set(action["inputs"])
        assert not unknown, f"the action has no input {unknown}"
        for name, what in action["inputs"].items():
            self.names[f"inputs.{name}"] = given.get(name, self.filled(what["default"]))
        return self.steps(action["runs"]["steps"], folder)

    def shell(self, step, action):
        assert step.get("shell", "bash") == "bash"
        files = {name: self.home / name for name in ("GITHUB_OUTPUT", "GITHUB_PATH")}
        for file in files.values():
            file.write_text("")
        own = {name: self.filled(str(text)) for name, text in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", self.filled(step["run"])], cwd=self.workspace,
            env={**self.environment, **own, **{name: str(file) for name, file in files.items()},
                 "PATH": ":".join([*self.paths, os.environ["PATH"]]), "GITHUB_ACTION_PATH": str(action or "")},
            capture_output=True, text=True, check=False)  # fmt: skip
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            name, _, text = line.partition("=")
            self.names[f"steps.{step['id']}.outputs.{name}"] = text
        self.paths[:0] = files["GITHUB_PATH"].read_text().split()
        return done.returncode


def checkout(folder):
    """Reveille's files as git has them, also those that are not committed yet."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=SOURCE).split("\0")
    for name in filter(None, names):
        if (SOURCE / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, folder / name)


class Foreign(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="reveille-kept-")
        cls.addClassCleanup(scratch.cleanup)
        cls.cache = pathlib.Path(scratch.name)
        cls.key = run(SOURCE / "packaging/ci/install", "--key").strip()
        cls.installed = cls.cache / f"reveille-Linux-X64-{cls.key}"
        if BUILD:
            cls.fill_cache()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="reveille-foreign-")
        self.addCleanup(scratch.cleanup)
        self.home = pathlib.Path(scratch.name) / "home"
        self.theirs = pathlib.Path(scratch.name) / "their repository"
        self.origin = pathlib.Path(scratch.name) / "origin"
        for folder in (self.home, self.theirs, self.origin):
            folder.mkdir()
        self.begin()

    @classmethod
    def fill_cache(cls):
        """A cache with the build's command, as the action would have left it."""
        command = cls.installed / "bin/reveille"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec "{BUILD}/cli/reveille" "$@"\n')
        command.chmod(0o755)
        (cls.installed / "from").write_text(cls.key + "\n")

    def git(self, *words):
        author = ["-c", "user.name=Them", "-c", "user.email=them@example.org"]
        return run("git", *author, *words, cwd=self.theirs)

    def begin(self):
        """Their repository: a config, checks with a baseline, a trace, our workflow; all on main at the origin."""
        shutil.copy(SOURCE / "tests/data/configs/qwen2.5-7b.json", self.theirs / "config.json")
        (self.theirs / "memory.toml").write_text(CHECKS)
        self.command = command = f"{BUILD or SOURCE / 'build/dev'}/cli/reveille"
        run(command, "check", "memory.toml", "--update-baseline", cwd=self.theirs)
        run(command, "model", "config.json", "--device", "h100-80g", "-o", "step.rvt", cwd=self.theirs)
        run("git", "init", "--quiet", "--bare", "--initial-branch=main", self.origin)
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "Begin")
        self.git("remote", "add", "origin", str(self.origin))
        self.git("push", "--quiet", "-u", "origin", "main")
        self.git("checkout", "--quiet", "-b", "change")

    def workflow(self, **given):
        workflow = yaml.safe_load((SOURCE / "examples/ci/memory.yml").read_text())
        steps = workflow["jobs"]["memory"]["steps"]
        for step in steps:
            if step.get("uses") == "./.reveille":
                step["with"].update(given)
        was_kept = self.installed.exists()
        self.runner = Runner(self.home, self.theirs, "main", self.cache)
        status = self.runner.job(steps)
        self.assertEqual(self.runner.hits, [(self.installed.name, was_kept)])
        return status, (self.home / "gh.body").read_text()

    def test_what_did_not_grow_is_green(self):
        status, comment = self.workflow()
        self.assertEqual(status, 0)
        self.assertEqual(self.runner.kept, [True])
        self.assertIn("### GPU memory: 5 stages, 0 failed", comment)
        self.assertIn("| `step` | `h100-80g` | `train` | 67.5 GiB |", comment)
        self.assertIn("fits, with 10.9 GiB to spare", comment)
        self.assertEqual((self.home / "gh.words").read_text().split()[:3], ["pr", "comment", "7"])

    def test_what_grew_is_red_and_says_what_changed(self):
        (self.theirs / "memory.toml").write_text(LONGER)
        run(self.command, "model", "config.json", "--device", "h100-80g", "--seq-len", "8192", "--train", "fsdp:8",
            "-o", "step.rvt", cwd=self.theirs)  # fmt: skip
        status, comment = self.workflow(compare="step.rvt\nnone.rvt\n")
        self.assertEqual(status, 3)
        self.assertIn("| +47.42 % | **OOM** |", comment)
        self.assertIn("out of memory: trainer/cached asked for", comment)
        self.assertIn("what changed at the peak", comment)
        self.assertIn("`none.rvt` is not compared: fatal: path 'none.rvt'", comment)
        self.assertEqual((self.home / "summary").read_text(), comment)
        self.assertIn("<failure", (self.theirs / "memory.xml").read_text())

    def test_a_broken_file_of_checks_is_named(self):
        (self.theirs / "memory.toml").write_text("schema = 1\nchecks = 7\n")
        status, comment = self.workflow()
        self.assertEqual(status, 2)
        self.assertRegex(comment, r"\A### GPU memory: not checked\n\n```text\nreveille: memory\.toml: \"checks\": expected a list")

    def test_hooks_and_templates_name_what_is_there(self):
        hooks = yaml.safe_load((SOURCE / ".pre-commit-hooks.yaml").read_text())
        self.assertEqual([each["entry"] for each in hooks], ["reveille check"])
        done = subprocess.run([self.command, *hooks[0]["entry"].split()[1:], *hooks[0]["args"]], cwd=self.theirs, check=False)
        self.assertEqual(done.returncode, 0)
        _, job = yaml.safe_load_all((SOURCE / "packaging/ci/gitlab.yml").read_text())
        lines = "\n".join(job["reveille-memory"]["before_script"][2:] + job["reveille-memory"]["script"])
        for name, text in (("checks", "memory.toml"),):
            lines = lines.replace(f"$[[ inputs.{name} ]]", text)
        self.assertNotIn("$[[", lines)
        checkout(self.theirs / ".reveille")
        if self.installed.exists():
            shutil.copytree(self.installed, self.theirs / ".reveille-ci", symlinks=True)
        run("bash", "-euo", "pipefail", "-c", lines, cwd=self.theirs)
        self.assertIn("0 failed", (self.theirs / "memory.md").read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
