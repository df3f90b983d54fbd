"""The document pipeline of `create_documents` and `prepare`, in the order of reading:

`plan` says what a run does, `run` is the job that starts or resumes it, `phases` computes its
parts, and `key_files` finds duplicates across elements.

An element is a bundle of consecutive input files. A phase is a function of (context, number) from
files to files, each of which gets its name only when it is complete. Its output depends on the
element and the options, but not on the worker or the time, so it can be computed anywhere, twice,
or not at all if its result exists.
"""
