"""The machine that runs every constraint: context-free rules over lexemes, determinized lazily, byte by byte."""
