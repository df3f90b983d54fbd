"""Start-up and error reports of all binaries."""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import os
import re
import signal
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from absl import app, flags, logging

from official_cmlm.common import progress, signals, validation
from official_cmlm.common.errors import Stopped, UserError, one_line
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import refuse_special, system_error

T = TypeVar("T")

EXIT_USER_ERROR = 1
# The run finished but left out input that could not be read, as `--on_error=skip` allows. The
# shell itself uses status 2.
EXIT_SKIPPED = 3
# The reader of our output went away (`… | head`); this is the shell's own status for SIGPIPE.
EXIT_BROKEN_PIPE = 141
EXIT_INTERRUPTED = 130
# Jobs say what they keep instead.
_AGAIN = "give the same command again"
# The encoder of the commands that need not be told one.
DEFAULT_MODEL = "mini-en"
# Environment variable with the file that gets the reason if this program fails.
_REASON_FILE = "CMLM_REASON_FILE"
# The message of a required flag without a value begins with it, after absl's own words.
_NEEDS = "needs "


def quiet_tensorflow() -> None:
    """Keeps TensorFlow's start-up short and hides its notices; call it before TensorFlow's import.

    `official_cmlm` itself hides most notices of the C++ part. `TF_CPP_MIN_LOG_LEVEL=0` in the
    environment and `--verbosity=0` show all notices.
    """
    # Otherwise TensorFlow spends two seconds on loading Keras 3; this project uses only tf_keras.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning, module="tensorflow")


def announce(message: str) -> None:
    """Prints on standard error, apart from results, what the binary begins to do.

    A binary calls it within two seconds of its start, and before anything that takes longer.
    """
    progress.close_bars()
    print(one_line(message), file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Prints a warning, one line on standard error."""
    announce(f"warning: {message}")


def import_tensorflow() -> None:
    """Imports TensorFlow and says so first, as that takes some ten seconds."""
    quiet_tensorflow()
    if "tensorflow" not in sys.modules:
        announce("importing TensorFlow …")
        try:
            importlib.import_module("tensorflow")
        except ModuleNotFoundError:
            check_extra("train", "tensorflow")
            raise


def run(main: Callable[..., int | None]) -> None:
    """Runs `main` under absl; turns a `UserError` into one line and exit status 1.

    Invalid flags, a lack of memory and the system's errors, TensorFlow's included, are reported in
    the same way. `Stopped` is reported as one line too, with exit status 0. Ctrl-C ends the program
    within two seconds, see `signals.ending_soon`, with exit status 130.

    Args:
      main: takes the positional arguments, returns an exit status or None. Others than it takes
        are an error.
    """

    def run_main(argv: list[str]) -> int | None:
        signature = inspect.signature(main)
        try:
            signature.bind(*argv[1:])
        except TypeError as error:
            if names := " ".join(signature.parameters).upper():
                return _fail(f"{error}; give {names}")
            return _fail(f"unexpected argument {argv[1]!r}; flags start with --")
        try:
            status = main(*argv[1:])
            # If output could not be written when Python ends, there would be a stack trace.
            sys.stdout.flush()
            return status
        except UserError as error:
            if flags.FLAGS.verbosity > 0:
                traceback.print_exc()
            return _fail(error)
        except Stopped as stop:
            announce(str(stop))
            return None
        except BrokenPipeError as error:
            return report_lost_output(error)
        except MemoryError as error:
            return _fail(f"not enough memory ({error or 'none is left'}); use less at a time")
        except Exception as error:
            cause = system_error(error) or (error if isinstance(error, OSError) else None)
            if cause is None:
                progress.close_bars()
                _note_reason(f"{type(error).__name__}: {error}")
                raise
            _drop_output()
            # The name is a number where a file was opened by its descriptor.
            is_named = isinstance(cause.filename, str | bytes | os.PathLike)
            where = f"{os.fsdecode(cause.filename)}: " if is_named else ""
            return _fail(f"{where}{cause.strerror or cause}")

    prepare_output()
    try:
        with signals.ending_soon(_AGAIN):
            app.run(run_main, flags_parser=_parse)
    except KeyboardInterrupt as stop:
        # Python would answer another one with a stack trace of its own end.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        announce(f"interrupted; {str(stop) or _AGAIN}")
        sys.exit(EXIT_INTERRUPTED)


def define(kind: type, *, skip: Collection[str] = (), **defaults: Any) -> None:
    """Defines a flag for each field of a dataclass, and of the dataclasses inside it.

    Everything is said once, in the dataclass: the field's type and `Annotated` give the flag's kind
    and the values that it takes, the section "Attributes" of the docstring its help.

    >>> define(Mining, skip={"seed"}, num_negatives=4)                 # doctest: +SKIP
    >>> mine(pairs, read(Mining, seed=7))                              # doctest: +SKIP

    Args:
      kind: fields are booleans, numbers, strings, lists of strings or whole numbers, dataclasses,
        or any of them or None. A flag without a value is None, or required if the field has no
        default. A field may declare another name and unit of its flag, see `validation.Flag`.
      skip: names of fields that get no flag.
      **defaults: defaults of flags in place of those of the fields.
    """
    help_of = validation.attributes_in_words(kind)
    for field in dataclasses.fields(kind):
        if field.name in skip:
            continue
        hint, *elements = validation.types_of(kind, field.name)
        limit = validation.limit_of(kind, field.name)
        if dataclasses.is_dataclass(hint):
            define(hint, skip=skip, **defaults)
            continue
        flag = validation.flag_of(kind, field.name)
        default = defaults.get(field.name, validation.default_of(field))
        default = list(default) if isinstance(default, tuple) else default
        is_required = default is dataclasses.MISSING
        words = f"{help_of[field.name]}{' Required.' if is_required else ''}"
        if flag.unit is not None:
            # A part of a unit may be a whole number of the field's.
            limit = validation.between(0, limit.high / flag.unit, above_low=True)
            hint, default = float, default if is_required else default / flag.unit
        if isinstance(limit, validation.Range) and limit != validation.ANY:
            words = f"{words} Must be {limit}."
        default = None if is_required else default
        if isinstance(limit, validation.OneOf) and hint is str:
            flags.DEFINE_enum(flag.name, default, limit.words, words)
            words = f"{words} One of {', '.join(filter(None, limit.words))}."
        else:
            if flag.repeats:
                flags.DEFINE_multi_string(flag.name, default, words)
            elif hint in (list, tuple):
                _define_list(flag.name, default, words, elements[0])
            else:
                _DEFINITIONS[hint](flag.name, default, words)
            flags.register_validator(flag.name, functools.partial(_check_limit, limit=limit))
        # Absl has added the choices to it, as one long word that it breaks at the end of a line.
        flags.FLAGS[flag.name].help = words
        if flag.alias:
            flags.DEFINE_alias(flag.alias, flag.name)
        if is_required:
            require_flags(flag.name)


def read(kind: type[T], **values: Any) -> T:
    """Returns a dataclass with the values of its flags; `values` of fields take the place of flags.

    Raises:
      UserError: as the dataclass does.
    """
    fields = {}
    for field in dataclasses.fields(kind):
        hint = validation.types_of(kind, field.name)[0]
        if field.name in values:
            fields[field.name] = values[field.name]
        elif dataclasses.is_dataclass(hint):
            fields[field.name] = read(hint, **values)
        elif (flag := validation.flag_of(kind, field.name)).name in flags.FLAGS:
            value = flags.FLAGS[flag.name].value
            if flag.unit is not None:
                value = max(1, int(value * flag.unit))
            is_list = hint in (list, tuple) and value is not None
            fields[field.name] = tuple(value) if is_list else value
    return kind(**fields)


class _NumbersParser(flags.ListParser):
    """The parser of whole numbers, separated by commas."""

    def parse(self, argument: str | list) -> list[int]:
        try:
            return [int(number) for number in super().parse(argument)]
        except ValueError:
            raise ValueError(f"give whole numbers, such as 64,128; got {argument}") from None


def _define_list(name: str, default: list | None, words: str, element: type) -> None:
    # A flag of a list that is given twice is refused, as only the last value would count.
    parser = _NumbersParser() if element is int else flags.ListParser()
    serializer = flags.CsvListSerializer(",")
    flags.DEFINE(parser, name, default, words, serializer=serializer, allow_overwrite=False)


# Type of a field -> the function that defines its flag.
_DEFINITIONS: dict[type, Callable] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def _check_limit(value: Any, limit: Any) -> bool:
    for item in value if isinstance(value, list) else [value]:
        if fault := validation.fault_of(item, limit):
            raise flags.ValidationError(fault)
    return True


def define_model(required: bool = True) -> None:
    """Defines `--model` and the flags of `define_computation`, for `encoders.load_model`."""
    define_model_name(required)
    define_computation()


def define_model_name(
    required: bool = True, what: str = f"an encoder, e.g. --model={DEFAULT_MODEL}"
) -> None:
    """Defines `--model`, any encoder by name, and its older name `--model_dir`.

    Where it is not required, the binary calls `take_default_model`.
    """
    flags.DEFINE_string(
        "model",
        None,
        "Encoder: an encoder directory (a --model_dir of a training, or an import), a"
        " sentence-transformers, Hugging Face or ONNX folder, an encoder that ships, an installed"
        " package of weights, such as all-MiniLM-L6-v2, or a name org/model of the Hugging Face"
        f" hub. {'Required.' if required else f'Default: {DEFAULT_MODEL}, for English.'}",
    )
    flags.DEFINE_alias("model_dir", "model")
    if required:
        require_flags("model", what=what)


def take_default_model() -> None:
    """Sets `--model` to `DEFAULT_MODEL` if it has no value, and says so."""
    if not flags.FLAGS.model:
        flags.FLAGS.model = DEFAULT_MODEL
        announce(
            f"taking {DEFAULT_MODEL}, an encoder for English; --model names another, such as "
            "mini-multi for other languages"
        )


@dataclasses.dataclass(frozen=True)
class Backend:
    """The library and device that compute; vectors do not change.

    Attributes:
      backend: library that computes. auto: the fastest here, measured once an encoder for many
        texts.
      device: device that computes, such as cpu, cuda or cuda:1. Default: cpu.
    """

    backend: Annotated[str, validation.OneOf(("auto", "onnx", "tensorflow"))] = "auto"
    device: str | None = None


@dataclasses.dataclass(frozen=True)
class Computation:
    """The way in which an encoder's vectors are computed.

    Attributes:
      revision: branch, tag or commit of a name org/model.
      max_seq_length: longer texts are cut to this many tokens. Default: the encoder's own length.
      precision: precision of the computation; int8 with onnx, bfloat16 with tensorflow.
    """

    revision: str | None = None
    max_seq_length: Annotated[int, validation.between(3, 1_000_000)] | None = None
    precision: Annotated[str, validation.OneOf(("float32", "int8", "bfloat16"))] = "float32"


def define_computation() -> None:
    """Defines the flags that say how an encoder's vectors are computed."""
    from official_cmlm.configs.encoder import VectorOverride

    define(Computation)
    define(Backend)
    define(VectorOverride, skip={"layer"})


def _fail(message: object) -> int:
    announce(f"error: {message}")
    _note_reason(message)
    return EXIT_USER_ERROR


def _note_reason(reason: object) -> None:
    if path := os.environ.get(_REASON_FILE):
        with contextlib.suppress(OSError):
            Path(path).write_text(one_line(str(reason)), encoding="utf-8")


@contextlib.contextmanager
def keep_reason() -> Iterator[Path]:
    """Yields a file that gets the reason if a program that is run meanwhile fails."""
    before = os.environ.get(_REASON_FILE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_REASON_FILE] = path = os.path.join(folder, "reason.txt")
        try:
            yield Path(path)
        finally:
            del os.environ[_REASON_FILE]
            if before is not None:
                os.environ[_REASON_FILE] = before


def is_part() -> bool:
    """Returns whether another program of this project has started this one as a part of its job."""
    return _REASON_FILE in os.environ


def prepare_output() -> None:
    """Lets standard output and error take any text; nothing is written where they are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            # The locale may be ASCII, and the name of a file may not be valid UTF-8.
            stream.reconfigure(errors="backslashreplace")


def report_lost_output(error: OSError) -> int:
    """Returns the exit status of an output that took no more, after a line unless it was a pipe."""
    _drop_output()
    is_pipe = isinstance(error, BrokenPipeError)
    return EXIT_BROKEN_PIPE if is_pipe else _fail(error.strerror or error)


def _drop_output() -> None:
    """Keeps Python from writing buffered output, when it ends, to an output that takes nothing."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(argv: list[str]) -> list[str]:
    """Parses the flags and returns the other arguments; ends with one line on a mistake."""
    # absl's `--help` lists only flags of the main module, but other modules define some for it.
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        for flag in () if module.startswith("absl.") else defined:
            flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    try:
        for name in re.findall(r"^--?flagfile[=\n] *(.+)", "\n".join(argv), re.MULTILINE):
            # A device would be read without end.
            refuse_special(os.path.expanduser(name))
        rest = flags.FLAGS(argv)
    except UserError as error:
        sys.exit(_fail(error))
    except flags.Error as error:
        text = str(error)
        if missing := re.search(rf"^flag --\w+=None: ({_NEEDS}.*)", text, re.MULTILINE):
            text = f"{os.path.basename(argv[0])} {missing[1]}"
        shown = text if len(text) <= 600 else f"{text[:300]} … {text[-300:]}"
        sys.exit(_fail(f"{shown.strip().rstrip('.')}; see --help"))
    except OSError as error:
        # The flag --help was given, and its text cannot be written.
        sys.exit(report_lost_output(error))
    return rest


def require_flags(*names: str, what: str = "") -> None:
    """Marks flags as required; `run` says of the first one that is missing what is needed."""
    for name in names:
        message = f"{_NEEDS}{what or f'--{name}'}"
        flags.register_validator(name, lambda value: value is not None, message)


def define_import_module() -> None:
    """Defines `--import_module`, which imports modules with a user's own objectives and suites."""
    flags.DEFINE_multi_string(
        "import_module",
        [],
        "Python module to import first, as package.module from the current folder or Python's path,"
        " e.g. one with an objective or a suite of your own; may be repeated. Default: none.",
    )


def import_modules() -> list[str]:
    """Imports the modules of `--import_module` and returns their names.

    They register objectives and suites, so this comes before anything that reads their names.

    Raises:
      UserError: for a module that cannot be imported.
    """
    hint = "--import_module takes package.module, seen from the current folder"
    for name in flags.FLAGS.import_module:
        import_user_module(name, hint)
    return flags.FLAGS.import_module


def import_user_module(name: str, hint: str) -> types.ModuleType:
    """Imports a module of the user's own, looked up from the current folder as `python -m` does.

    Raises:
      UserError: if it cannot be imported, with the hint; a user's module may raise anything.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UserError(
            f"{name}: cannot be imported ({type(error).__name__}: {error}); {hint}"
        ) from None
