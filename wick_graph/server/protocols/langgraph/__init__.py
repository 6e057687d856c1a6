"""LangGraph's server API under `/langgraph`: agents are assistants.

shapes.py      our threads, runs and steps as LangGraph's JSON
asking.py      requests for runs, checked; answers to questions
following.py   the events and steps of runs, in order, after a place that a client names
frames.py      what a run's events and steps are in the streams of runs
threads.py     routes of assistants, threads and items
runs.py        routes of runs
protocol.py    the thread protocol: commands, and streams over all runs of a thread
"""
