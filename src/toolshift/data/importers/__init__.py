"""Tool lists as agents hold them, read into our records: OpenAI, Anthropic, MCP, OpenAPI, Swagger, Python callables.

`toolshift.data.importers.reading.import_tools` reads a file, a folder or objects in memory; the dialect of every tool
is recognised by its content. `toolshift.data.importers.dialects` says what a dialect module offers.
"""
