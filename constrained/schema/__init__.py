"""JSON Schema: documents and references, what each keyword asserts, and the rules of the JSON texts that satisfy it."""
