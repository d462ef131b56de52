"""The program's command line in a capture: readable, and without secrets and places of the machine."""

import pytest

from kernel_recorder.command import HIDDEN, MAX_PROGRAM_CHARS, program_text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["python", "train.py", "--lr", "3e-4"], "python train.py --lr 3e-4"),
        (["/home/ada/.venv/bin/python", "/home/ada/project/train.py"], "python train.py"),
        (["torchrun", "--nproc_per_node=2", "-m", "pkg.train"], "torchrun --nproc_per_node=2 -m pkg.train"),
        (["t", "--data=/scratch/ada/c4", "--out", "~/runs/1"], "t --data=c4 --out 1"),
        (["t", "--wandb-api-key", "abc", "--epochs", "3"], f"t --wandb-api-key {HIDDEN} --epochs 3"),
        (["t", "--hf-token=abc", "password=x"], f"t --hf-token={HIDDEN} password={HIDDEN}"),
        (["t", "hf_abcdefghijklmnop", "--id", "a1" * 20], f"t {HIDDEN} --id {HIDDEN}"),
        (["t", "s3://ada:pw@bucket/x"], f"t s3://{HIDDEN}@bucket/x"),
        (["t", "--use-auth", "--epochs", "3"], "t --use-auth --epochs 3"),
    ],
)
def test_a_command_line_is_shown_without_secrets_and_places(arguments, text):
    assert program_text(arguments) == text


def test_a_long_command_line_is_cut():
    assert len(program_text(["python", *["--flag"] * 100])) == MAX_PROGRAM_CHARS
