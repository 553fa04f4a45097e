"""Many small files in ordinary tar archives, with random access: `convoy.data.PackedFiles` for users.

`pack` writes archives with the standard library. `tar_scan` finds the files of an archive by its headers
alone, and `index_file` keeps the result beside the archive. `packed_files` reads single files.
"""
