"""Workers: processes that execute the runs of servers, on PostgreSQL.

The rows of `streams` are the truth, and the queue is a hint. A lost, doubled, forged or wrongly
finished job may cost time, but never a run, a call or an order.

    queue.py      the schema of the queue; jobs for runs that may begin; the sweep
    worker.py     the process: fetches jobs, claims their runs, gives them back when it stops
"""
