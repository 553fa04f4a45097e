"""Small programs by name, each of which ends in a different way. The variable `OUT` names the folder for
their files.
"""
# ruff: noqa: E501 - one program per line

from __future__ import annotations

_OPEN = "import os\nfile = open(os.environ['OUT'] + '/file', 'w')\nfile.write('written')\n"
_NOTE = (
    "import os\n"
    "def note(text):\n"
    "    with open(os.environ['OUT'] + '/notes', 'a') as file:\n"
    "        file.write(text + '\\n')\n"
)

EXITS = {
    f"sys.exit({code})": f"import sys\nprint('on its way', end='')\nsys.exit({code})\n"
    for code in (
        "", "None", "0", "3", "256", "300", "-1", "2**31", "2**40", "True", "'text'", "b'bytes'", "(1, 2)",
        "3.5", "[]",
    )
}  # fmt: skip

ENDS = {
    "returns": "print('through', end='')\n",
    "empty": "",
    "an open file": _OPEN,
    "an open file and an error": _OPEN + "raise ValueError('x')\n",
    "an open file and an exit": _OPEN + "raise SystemExit(4)\n",
    "an open file in another module": (
        "import os, sys, types\nmodule = types.ModuleType('mine')\nsys.modules['mine'] = module\n"
        "module.file = open(os.environ['OUT'] + '/file', 'wb')\nmodule.file.write(b'x' * 10_000)\ndel module\n"
    ),
    "an open file in a module of the library": (
        "import json, os\njson.mine = open(os.environ['OUT'] + '/file', 'w')\njson.mine.write('written')\n"
    ),
    "an open file in a cycle": (
        _OPEN + "class Box: pass\nbox = Box()\nbox.file, box.self = file, box\ndel file\n"
    ),
    "a writer of csv": "import csv\n" + _OPEN + "csv.writer(file).writerow([1, 2])\n",
    "a log to a file": (
        "import logging, os\nlogging.basicConfig(filename=os.environ['OUT'] + '/log', level='INFO', format='%(message)s')\n"
        "logging.info('logged')\n"
    ),
    "a buffering log handler": (
        "import logging, logging.handlers, os\n"
        "target = logging.FileHandler(os.environ['OUT'] + '/log')\n"
        "logging.root.addHandler(logging.handlers.MemoryHandler(100, 99, target))\nlogging.error('kept')\n"
    ),
    "a destructor": _NOTE + "class Box:\n    def __del__(self): note('destroyed')\nbox = Box()\n",
    "destructors in order": (
        _NOTE + "class Box:\n    def __init__(self, name): self.name = name\n"
        "    def __del__(self): note(self.name)\n_a, b, c = Box('a'), Box('b'), Box('c')\nb = Box('b again')\n"
    ),
    "a destructor that fails": "class Box:\n    def __del__(self): raise KeyError('late')\nbox = Box()\n",
    "a finalizer": _NOTE
    + "import weakref\nclass Box: pass\nbox = Box()\nweakref.finalize(box, note, 'final')\n",
    "a generator": (
        _NOTE + "def numbers():\n    try:\n        yield 1\n    finally:\n        note('closed')\n"
        "running = numbers()\nnext(running)\n"
    ),
    "an open context": (
        _NOTE
        + "import contextlib\n@contextlib.contextmanager\ndef held():\n    try:\n        yield\n    finally:\n"
        "        note('left')\nstack = contextlib.ExitStack()\nstack.enter_context(held())\n"
    ),
    "a temporary folder": (
        "import os, tempfile\nfolder = tempfile.TemporaryDirectory(dir=os.environ['OUT'])\nopen(folder.name + '/x', 'w')\n"
    ),
    "exit handlers": (
        _NOTE + "import atexit, threading\natexit.register(note, 'first')\natexit.register(note, 'second')\n"
        "thread = threading.Thread(target=lambda: note('thread'))\nthread.start()\nthread.join()\nnote('main')\n"
    ),
    "an exit handler that fails": "import atexit\natexit.register(lambda: 1 / 0)\natexit.register(print, 'after')\n",
    "an exit handler that exits": "import atexit, sys\natexit.register(sys.exit, 7)\natexit.register(print, 'x')\n",
    "exit handlers behind an error": "import atexit\natexit.register(print, 'handled')\nraise ValueError('x')\n",
    "__file__ in an exit handler": (
        "import atexit, __main__\natexit.register(lambda: print('__file__' in vars(__main__)))\n"
    ),
    "a thread that goes on": (
        _NOTE + "import threading, time\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), note('thread'))).start()\nnote('main')\n"
    ),
    "a thread that goes on behind an error": (
        _NOTE
        + "import threading\nthreading.Thread(target=lambda: (threading.main_thread().join(), note('thread'))).start()\n"
        "raise ValueError('x')\n"
    ),
    "a daemon thread": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
    "a pool of threads": (
        _NOTE
        + "import concurrent.futures\npool = concurrent.futures.ThreadPoolExecutor(1)\npool.submit(note, 'done')\n"
    ),
    "an error in a thread": "import threading\nthreading.Thread(target=lambda: 1 / 0, name='T').start()\n",
    "an exit in a thread": "import sys, threading\nthreading.Thread(target=sys.exit, args=(5,)).start()\n",
    "an error": "def f():\n    raise ValueError('no such column')\nf()\n",
    "chained errors": "try:\n    {}['a']\nexcept KeyError as error:\n    raise RuntimeError('b') from error\n",
    "an error in handling an error": "try:\n    {}['a']\nexcept KeyError:\n    1 / 0\n",
    "an error without text": "class Mine(BaseException):\n    def __str__(self): raise ValueError\nraise Mine\n",
    "an error of another module": "import json\njson.loads('{')\n",
    "endless recursion": "def f():\n    f()\nf()\n",
    "an interrupt": "raise KeyboardInterrupt\n",
    "an interrupt with files": _OPEN + "def f():\n    raise KeyboardInterrupt('x')\nf()\n",
    "a hook for errors": "import sys\nsys.excepthook = lambda *error: print('hook', error[1], sys.exc_info())\n1 / 0\n",
    "a hook that fails": "import sys\ndef hook(*_):\n    {}['late']\nsys.excepthook = hook\n1 / 0\n",
    "a hook that exits": "import sys\nsys.excepthook = lambda *_: sys.exit(9)\n1 / 0\n",
    "no hook": "import sys\ndel sys.excepthook\n1 / 0\n",
    "the last error": (
        "import atexit, sys\natexit.register(lambda: print(repr(sys.last_value), sys.last_traceback.tb_lineno))\n1 / 0\n"
    ),
    "an exit with a message of its own": "class Mine(SystemExit):\n    code = 6\nraise Mine('text')\n",
    "os._exit": _OPEN + "print('lost?')\nos._exit(5)\n",
    "SIGTERM": "import os\nos.kill(os.getpid(), 15)\n",
    "SIGKILL": "import os\nos.kill(os.getpid(), 9)\n",
    "SIGINT": "import os, time\nos.kill(os.getpid(), 2)\ntime.sleep(60)\n",
    "SIGUSR1": "import os\nos.kill(os.getpid(), 10)\n",
    "SIGPIPE is ignored": "import os\nread, write = os.pipe()\nos.close(read)\nos.write(write, b'x')\n",
    "a handler for SIGTERM": (
        "import os, signal, sys\nsignal.signal(15, lambda *_: sys.exit(75))\nos.kill(os.getpid(), 15)\nsignal.pause()\n"
    ),
    "an abort": "import os\nos.abort()\n",
    "a segmentation fault": "import faulthandler\nfaulthandler._sigsegv()\n",
    "a full file size": (
        "import os, resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "file = open(os.environ['OUT'] + '/file', 'wb', 0)\nprint(file.write(b'x' * 99))\nfile.write(b'x')\n"
    ),
    "stdout closed": "import sys\nprint('x')\nsys.stdout.close()\n",
    "descriptor 1 closed": "import os\nprint('x', flush=True)\nos.close(1)\nprint('y')\n",
    "stdout that breaks at the end": (
        "import os, sys\nread, write = os.pipe()\nos.close(read)\nos.dup2(write, 1)\n"
        "sys.stdout = open(1, 'w', closefd=False)\nprint('x')\n"
    ),
    "bytes and text": "import sys\nsys.stdout.buffer.write(b'\\xff\\n')\nprint('\\udcff', 'ä')\nsys.stderr.write('no end')\n",
    "reads stdin": "import sys\nprint(repr(sys.stdin.read()), sys.stdin.isatty())\ninput()\n",
    "a deleted folder": (
        "import os, tempfile\nfolder = tempfile.mkdtemp()\nos.chdir(folder)\nos.rmdir(folder)\nimport json\nos.getcwd()\n"
    ),
    "a fork": (
        "import os, sys\nprint('before')\nif os.fork() == 0:\n    print('child', flush=True)\n    sys.exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    ),
    "executes another program": "import os\nos.execvp('echo', ['echo', 'replaced'])\n",
    "a subprocess": (
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import os; print(sorted(os.listdir(\"/proc/self/fd\")))'],"
        " capture_output=True).stdout, flush=True)\n"
    ),
    "another interpreter": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(1)'], check=True)\n",
    "an event loop": "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print('x')\nasyncio.run(main())\n",
    "an event loop left open": "import asyncio\nloop = asyncio.new_event_loop()\nasyncio.set_event_loop(loop)\n",
    "a coroutine never awaited": "async def f(): pass\nf()\n",
    "the stack": "import traceback\ntraceback.print_stack()\n",
    "warnings": (
        "import warnings\nwarnings.warn('mine')\nwarnings.warn('old', DeprecationWarning)\nwarnings.warn('r', ResourceWarning)\n"
    ),
    "an unclosed database": "import os, sqlite3\nbase = sqlite3.connect(os.environ['OUT'] + '/base')\nbase.close()\nos.remove(os.environ['OUT'] + '/base')\n",
    "annotations": "x: int = 1\nprint(__annotations__)\n",
    "arguments": "import sys\nprint(sys.argv, sys.orig_argv if hasattr(sys, 'orig_argv') else '')\n",
    "a module that is not there": "import this_is_nowhere\n",
    "random numbers": "import random, uuid, secrets\nprint(random.random() != random.random(), len(secrets.token_hex()))\n",
}

SOURCES = {
    "a syntax error": b"def f(:\n",
    "bad indentation": b"if 1:\nprint()\n",
    "a tab": b"if 1:\n\tx = 1\n        y = 2\n",
    "a null byte": b"x = 1\0\n",
    "no encoding": b"x = '\xff'\n",
    "an unknown encoding": b"# coding: nothing\nprint(1)\n",
    "latin-1": b"# -*- coding: latin-1 -*-\nprint(ascii('\xe4'))\n",
    "a byte order mark": b"\xef\xbb\xbfprint(1)\n",
    "carriage returns": b"x = '''a\r\nb'''\r\nprint(repr(x))\r\n",
    "a syntax warning": b"print('\\d', 1 is 1)\n",
    "a syntax warning and error": b"print('\\d')\ndef f(:\n",
    "annotations of the future": b"from __future__ import annotations\ndef f(x: nothing): pass\nprint(f.__annotations__)\n",
    "no last line end": b"print(1)",
    "nested too deeply": b"x = " + b"(" * 300 + b")" * 300 + b"\n",
    "a hash bang": b"#!/usr/bin/env python\nprint(__file__)\n",
    "a docstring": b"'''doc'''\nprint(__doc__)\n",
}

PROCESSES = """
import concurrent.futures, multiprocessing, multiprocessing.shared_memory, os, sys

class Item:
    def __init__(self, value):
        self.value = value

def square(item):
    print("worker", multiprocessing.current_process().name, multiprocessing.parent_process() is not None, flush=True)
    return Item(item.value ** 2), __name__, sys.argv[1:], os.getpid() != os.getppid()

if __name__ == "__main__":
    method = sys.argv[1]
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        found = pool.map(square, [Item(2), Item(3)])
    print([(item.value, *rest) for item, *rest in found])
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        print(pool.submit(square, Item(4)).result()[0].value)
    queue = context.Queue()
    process = context.Process(target=queue.put, args=(5,))
    process.start()
    print(process.name, queue.get())
    process.join()
    print(process.exitcode)
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=8)
    memory.close()
    memory.unlink()
    failing = context.Process(target=sys.exit, args=(3,))
    failing.start()
    failing.join()
    print(failing.exitcode, multiprocessing.active_children())
"""
