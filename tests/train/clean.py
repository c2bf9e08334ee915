"""Control characters in files, names and command lines never reach the terminal: they are printed as question marks."""

from harness import *

BAD = "\033[31m\r\u009b2J\u202e"
SHOWN = "?[31m?" + "??2J" + "???"  # one mark for each byte in UTF-8


def clean(result, code, words):
    result.want(code)
    for text in (result.out, result.err):
        rest = [letter for letter in text.replace("\n", "") if not letter.isprintable()]
        assert not rest, f"{rest!a} in {text!a}"
    assert words in result.out + result.err, f"no '{words}' in\n{result}"


def test_a_checkpoint_of_another():
    need_checkpoints()
    with tempfile.TemporaryDirectory(prefix="tutti-clean-") as folder:
        path = os.path.join(folder, "f")
        subprocess.run([os.environ["TUTTI_FOREIGN_RUN"], path], check=True)
        for np in few((1, 2)):
            result = run(["--data", small_data(), "--batch", 50, "--checkpoint", path, "--resume"], np=np)
            clean(result, 64, "was saved with --task ?[2J??; this run uses fashion")


def test_names_of_files():
    with tempfile.TemporaryDirectory(prefix="tutti-clean-") as folder:
        odd = os.path.join(folder, BAD)
        shown = os.path.join(folder, SHOWN)
        clean(run(["--data", odd]), 2, shown)
        clean(run(["--task", "bytes", odd]), 2, shown)
        clean(run(["--task", "bytes", odd], np=2), 2, shown)
        os.mkdir(odd)
        make_data(odd)
        clean(run(["--data", odd, "--batch", 600, "--epochs", 1]), 0, shown)


def test_command_lines():
    for option in ("--width", "--lr", "--dtype", "--resume", "--seed", "--backend"):
        clean(run([f"{option}={BAD}"]), 64, SHOWN)
    clean(run([BAD]), 64, SHOWN)


run_tests()
