"""Runs a program under nsys with the original standard streams, so that nsys's own messages stay out of them.

python -I -S own_streams.py INPUT OUTPUT ERROR PROGRAM ...    (three file descriptors)
"""

import os
import sys


def main(arguments: list[str]) -> None:
    """Restores the streams and executes the program in this process."""
    streams, program = [int(number) for number in arguments[:3]], arguments[3:]
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
