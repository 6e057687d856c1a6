"""The graph's nodes: one file each, and each file one `async def body(state, ctx) -> update`.

    START → before_agent → modify_request → model ─ route: tools → tools → modify_request …
                                                  └ route: end → END

A body awaits only methods of `ctx.bridge` (`wick_graph.core.bridge`), so the same body serves
`invoke` and `ainvoke`. The files are installed as `wick_graph.nodes`; they hold functions only.
Import a body from its own module, such as `wick_graph.nodes.model`; this one exports none.
"""
