"""Gives a program its own standard streams back, behind nsys, which writes between them what it has to say.

python -I -S own_streams.py INPUT OUTPUT ERROR PROGRAM ...    (three numbers of open files)
"""

import os
import sys


def main(arguments: list[str]) -> None:
    """Becomes the program."""
    streams, program = [int(number) for number in arguments[:3]], arguments[3:]
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
