"""Recordings for other tools and other machines.

    html     one page that shows the run offline        pytest   a test that replays it
    wickrun  the thread in a file, to open again        chrome   a timeline for Perfetto
    jsonl    the moments, one a line                    masked   secrets hidden, values cut

Each form only reads the journal: no model, tool or hook is called.
"""
