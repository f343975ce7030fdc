#!/usr/bin/env python3
"""cvc5 as a program for `vosti verify`: reads SMT-LIB on standard input, answers each (check-sat).

The PyPI package `cvc5` (1.4.2) has a library and no program. Put a cvc5 program on PATH, or
`pip install cvc5` and set VOSTI_CVC5 to this file.
"""
import sys

import cvc5


def answer(text):
    manager = cvc5.TermManager()
    solver = cvc5.Solver(manager)
    symbols = cvc5.SymbolManager(manager)
    parser = cvc5.InputParser(solver, symbols)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "question")
    said = ""
    while True:
        command = parser.nextCommand()
        if command.isNull():
            return said
        said += command.invoke(solver, symbols)


def main():
    if "--version" in sys.argv:
        return print(f"This is cvc5 version {cvc5.__version__} (library)")
    question = []
    for line in sys.stdin:
        if line.strip() == "(reset)":
            question = []
            continue
        question.append(line)
        if line.strip() == "(check-sat)":
            # The first word alone: the library adds a reason, as in `unknown (TIMEOUT)`.
            print(answer("".join(question)).split()[0], flush=True)


if __name__ == "__main__":
    main()
