"""Grammars written by people (GBNF, EBNF, Lark) and the composable form, as rules of the pushdown machine."""
