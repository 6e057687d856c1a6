"""The graph's nodes: one file each, and each file one `async def body(state, ctx) -> update`.

    START → before_agent → modify_request → model ─ route: tools → tools → modify_request …
                                                  └ route: end → END

A body awaits only the leaves of `ctx.bridge` (`wick_graph.core.bridge`), so the same body serves
`invoke` and `ainvoke`. The files are installed as `wick_graph.nodes`; they hold functions only. A
body is imported from its own module, `wick_graph.nodes.model`: none hides it here.
"""
