"""AG-UI: runs over SSE. A run is a view of a session's events; the session goes on without it.

``wire`` has the shapes, ``translate*`` are pure, ``runs`` holds open streams, ``routes`` decode, ask and encode.
"""
