#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/release makes, without a network: the archive, checksums, the list of what is in it, recipes.

    test_release.py SOURCE_DIR             in a copy of the repository
    test_release.py SOURCE_DIR --build     and builds the archive as conda's, Spack's and vcpkg's recipes do: minutes

RVL_VCPKG=FOLDER                            a checkout of vcpkg: with --build, its own scripts build the port
RVL_SPACK=FOLDER PACKAGES WRAPPER           checkouts of spack, spack-packages and compiler-wrapper: with --build, Spack
                                            installs the recipe (tests/install/spack_build.sh)
"""
import ast
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest
import unittest.mock

SOURCE = pathlib.Path(sys.argv[1]).resolve()
BUILD = "--build" in sys.argv
HOME = "https://example.org/them/reveille"
ALONE = ["unshare", "-rn"] if subprocess.run(["unshare", "-rn", "true"], check=False, capture_output=True).returncode == 0 else []

if shutil.which("git") is None or subprocess.run(["git", "rev-parse", "HEAD"], cwd=SOURCE, check=False, capture_output=True).returncode:
    print("SKIP: no git, or not a checkout of it")
    sys.exit(77)


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="reveille-release-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.copy = cls.folder / "copy"
        subprocess.run(["git", "clone", "--quiet", "--shared", SOURCE, cls.copy], check=True)
        changed = subprocess.run(["git", "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"], cwd=SOURCE,
                                 capture_output=True, text=True, check=True).stdout.split("\0")  # fmt: skip
        for name in (line[3:] for line in changed if line):
            if (SOURCE / name).exists():
                (cls.copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(SOURCE / name, cls.copy / name)
        author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "add", "-A"], cwd=cls.copy, check=True)
        subprocess.run(["git", *author, "commit", "--quiet", "--allow-empty", "-m", "Copy"], cwd=cls.copy, check=True)
        cls.said = cls.release()
        cls.version = re.search(r"build/release-([0-9.]+):", cls.said)[1]
        cls.out = cls.copy / f"build/release-{cls.version}"
        cls.archive = cls.out / f"reveille-{cls.version}.tar.gz"

    @classmethod
    def release(cls, *more, status=0):
        done = subprocess.run([*ALONE, cls.copy / "scripts/release", *(more or ("--dry-run", "--home", HOME))], cwd=cls.copy,
                              capture_output=True, text=True, check=False, timeout=120)  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def test_the_archive_is_the_commit_and_the_same_each_time(self):
        with tarfile.open(self.archive) as archive:
            packed = {each.name for each in archive.getmembers() if not each.isdir()}
        tracked = subprocess.run(["git", "ls-tree", "-rz", "--name-only", "HEAD"], cwd=self.copy, capture_output=True, text=True,
                                 check=True).stdout.split("\0")  # fmt: skip
        expected = {f"reveille-{self.version}/{name}" for name in tracked if name}
        self.assertTrue(packed == expected, sorted(packed ^ expected)[:5])
        self.assertGreater(len(packed), 500)
        before = self.archive.read_bytes()
        self.release()
        self.assertEqual(self.archive.read_bytes(), before)

    def test_sums_are_those_of_the_files(self):
        lines = (self.out / "SHA256SUMS").read_text().splitlines()
        for line in lines:
            digest, name = line.split()
            self.assertEqual(hashlib.sha256((self.out / name).read_bytes()).hexdigest(), digest)
        self.assertIn(self.archive.name, " ".join(lines))
        self.assertIn("not signed: no --key", self.said)

    @unittest.skipUnless(shutil.which("gpg"), "no gpg")
    def test_a_key_signs_the_sums(self):
        """With a key that is made here. Its agent ends with its folder."""
        ring = tempfile.mkdtemp(prefix="gpg-")
        self.addCleanup(shutil.rmtree, ring)
        self.addCleanup(subprocess.run, ["gpgconf", "--homedir", ring, "--kill", "all"], check=False, capture_output=True)
        with unittest.mock.patch.dict(os.environ, {"GNUPGHOME": ring}):
            self.assertIn('no secret key "them@example.org"',
                          self.release("--dry-run", "--home", HOME, "--key", "them@example.org", status=1))  # fmt: skip
            subprocess.run(["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", "them@example.org"], check=True,
                           capture_output=True)  # fmt: skip
            said = self.release("--dry-run", "--home", HOME, "--key", "them@example.org")
            self.assertIn("SHA256SUMS.asc", said)
            self.assertNotIn("not signed", said)
            sums, signature = self.out / "SHA256SUMS", self.out / "SHA256SUMS.asc"
            verify = ["gpg", "--batch", "--verify", signature, sums]
            self.assertEqual(subprocess.run(verify, check=False, capture_output=True).returncode, 0)
            sums.write_text(sums.read_text().replace("0", "1", 1))
            self.assertEqual(subprocess.run(verify, check=False, capture_output=True).returncode, 1)
            self.release()  # as the other tests expect it

    def test_the_list_names_the_archive(self):
        listed = json.loads((self.out / f"reveille-{self.version}.spdx.json").read_text())
        self.assertEqual(listed["spdxVersion"], "SPDX-2.3")
        own = {each["name"]: each for each in listed["packages"]}
        self.assertEqual(own[self.archive.name]["checksums"][0]["checksumValue"],
                         hashlib.sha256(self.archive.read_bytes()).hexdigest())  # fmt: skip
        identifiers = [each["SPDXID"] for each in listed["packages"]]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for relation in listed["relationships"]:
            self.assertIn(relation["relatedSpdxElement"], identifiers)

    def test_recipes_are_filled_in(self):
        recipes = {str(path.relative_to(self.out / "recipes")): path.read_text()
                   for path in (self.out / "recipes").rglob("*") if path.is_file()}  # fmt: skip
        self.assertEqual(sorted(recipes), ["conda/build.sh", "conda/meta.yaml", "spack/package.py", "vcpkg/portfile.cmake",
                                           "vcpkg/vcpkg.json"])  # fmt: skip
        sums = {kind: hashlib.new(kind, self.archive.read_bytes()).hexdigest() for kind in ("sha256", "sha512")}
        for name, kind in (("conda/meta.yaml", "sha256"), ("spack/package.py", "sha256"), ("vcpkg/portfile.cmake", "sha512")):
            self.assertIn(sums[kind], recipes[name])
            self.assertIn(f"{HOME}/releases/download/v{self.version}/{self.archive.name}", recipes[name])
        for name, text in recipes.items():
            self.assertIsNone(re.search(r"@[A-Z0-9]+@", text), name)
        ast.parse(recipes["spack/package.py"])
        self.assertEqual(json.loads(recipes["vcpkg/vcpkg.json"])["version"], self.version)

    def test_what_is_unreleased_is_not_released(self):
        self.assertIn("calls 0.1.0 unreleased" if "(unreleased)" in (SOURCE / "CHANGELOG.md").read_text() else "no address",
                      self.release("--home", HOME, status=1))  # fmt: skip
        (self.copy / "new.txt").write_text("x")
        self.addCleanup((self.copy / "new.txt").unlink)
        self.assertIn("not committed", self.release("--home", HOME, status=1))

    @unittest.skipUnless(BUILD, "without --build")
    def test_the_archive_builds_by_the_recipes(self):
        """The commands of the recipes, with this machine's libraries. conda-build itself is not here."""
        with tarfile.open(self.archive) as archive:
            archive.extractall(self.folder / "unpacked", filter="data")
        source = self.folder / "unpacked" / f"reveille-{self.version}"
        prefix = self.folder / "conda"
        subprocess.run(["bash", self.out / "recipes/conda/build.sh"], cwd=source, env={**os.environ, "PREFIX": str(prefix)}, check=True)
        self.check_installed(prefix)
        if "RVL_VCPKG" in os.environ:
            subprocess.run([SOURCE / "tests/install/vcpkg_port.sh", os.environ["RVL_VCPKG"], self.out, SOURCE], check=True)
        if "RVL_SPACK" in os.environ:
            subprocess.run([SOURCE / "tests/install/spack_build.sh", *os.environ["RVL_SPACK"].split(), self.out, SOURCE], check=True)
        # Spack's without CUDA and vcpkg's: one build.
        options = re.findall(r"-DRVL_\w+=\w+", (self.out / "recipes/vcpkg/portfile.cmake").read_text())
        self.assertEqual(self.spack_options("~cuda"), options)
        prefix = self.folder / "spack"
        said = subprocess.run(["cmake", "-S", source, "-B", self.folder / "b", "-G", "Ninja", *self.spack_options("~cuda"),
                               f"-DCMAKE_INSTALL_PREFIX={prefix}"], check=True, capture_output=True, text=True)  # fmt: skip
        self.assertNotIn("not used by the project", said.stderr)
        subprocess.run(["cmake", "--build", self.folder / "b", "--target", "install"], check=True)
        self.check_installed(prefix)

    def spack_options(self, spec):
        """What Spack's recipe gives to CMake: the class runs, with a stand-in for what it takes from Spack."""
        spack, systems = types.ModuleType("spack.package"), types.ModuleType("cmake")
        for name in ("license", "version", "variant", "depends_on"):
            setattr(spack, name, lambda *_args, **_options: None)
        systems.generator = lambda *_args: None
        systems.CMakePackage = type("CMakePackage", (), {"spec": types.SimpleNamespace(satisfies=spec.__eq__)})
        recipe, builtin = {}, "spack_repo.builtin.build_systems"
        modules = {name: types.ModuleType(name) for name in ("spack", "spack_repo", "spack_repo.builtin", builtin)}
        with unittest.mock.patch.dict(sys.modules, {**modules, f"{builtin}.cmake": systems, "spack.package": spack}):
            exec((self.out / "recipes/spack/package.py").read_text(), recipe)  # noqa: S102
        return recipe["Reveille"]().cmake_args()

    def test_spack_builds_with_cuda_or_without(self):
        self.assertEqual(set(self.spack_options("~cuda")) ^ set(self.spack_options("+cuda")), {"-DRVL_CUDA=OFF", "-DRVL_CUDA=ON"})

    def check_installed(self, prefix):
        said = subprocess.run([prefix / "bin/reveille", "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said, f"reveille {self.version}\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
