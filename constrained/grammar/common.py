"""The terminals of Lark's ``common`` library, as regexes in Python's syntax."""

from __future__ import annotations

_INT = "[0-9]+"
_EXPONENT = f"[eE][+-]?{_INT}"
_DECIMAL = rf"(?:{_INT}\.(?:{_INT})?|\.{_INT})"
_FLOAT = f"(?:{_INT}{_EXPONENT}|{_DECIMAL}(?:{_EXPONENT})?)"

COMMON: dict[str, str] = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": _INT,
    "SIGNED_INT": f"[+-]?{_INT}",
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": f"[+-]?{_FLOAT}",
    "NUMBER": f"(?:{_FLOAT}|{_INT})",
    "SIGNED_NUMBER": f"[+-]?(?:{_FLOAT}|{_INT})",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*(?:[^*]|\*+[^*/])*\*+/",
    "SQL_COMMENT": r"--[^\n]*",
}
