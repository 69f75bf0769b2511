"""Ways to keep what was computed, as the helpers of a model have them in a file of their own."""

import contextvars
import functools
import threading
from collections import OrderedDict, UserDict, deque
from types import SimpleNamespace

import torch


def computed(length):
    return torch.arange(length).float()


of_lru_cache = functools.lru_cache(maxsize=4)(computed)
of_cache = functools.cache(computed)

DICT, LIST, DEQUE, ORDERED, USER_DICT = {}, [], deque(maxlen=3), OrderedDict(), UserDict()
NAMESPACE, LOCAL, VARIABLE = SimpleNamespace(), threading.local(), contextvars.ContextVar("kept")
TUPLE = ({}, [])
LAST = None


def of_dict(length):
    if int(length) not in DICT:
        DICT[int(length)] = computed(length)
    return DICT[int(length)]


def of_list(length):
    if not LIST:
        LIST.append(computed(length))
    return LIST[0]


def of_deque(length):
    DEQUE.append(computed(length))
    return DEQUE[0][:length] if len(DEQUE[0]) >= length else DEQUE[-1]


def of_ordered_dict(length):
    return ORDERED.setdefault("kept", computed(length))


def of_user_dict(length):
    return USER_DICT.setdefault("kept", computed(length))


def of_tuple(length):
    return TUPLE[0].setdefault("kept", computed(length))


def of_namespace(length):
    if not hasattr(NAMESPACE, "kept"):
        NAMESPACE.kept = computed(length)
    return NAMESPACE.kept


def of_thread(length):
    if not hasattr(LOCAL, "kept"):
        LOCAL.kept = computed(length)
    return LOCAL.kept


def of_context(length):
    if VARIABLE.get(None) is None:
        VARIABLE.set(computed(length))
    return VARIABLE.get()


def of_global_variable(length):
    global LAST
    if LAST is None:
        LAST = computed(length)
    return LAST


def of_default(length, kept={}):  # noqa: B006
    return kept.setdefault("kept", computed(length))


def of_keyword_default(length, *, kept={}):  # noqa: B006
    return kept.setdefault("kept", computed(length))


def of_function(length):
    if not hasattr(of_function, "kept"):
        of_function.kept = computed(length)
    return of_function.kept


def remembering(function):
    kept = {}

    @functools.wraps(function)
    def call(length):
        if int(length) not in kept:
            kept[int(length)] = function(length)
        return kept[int(length)]

    return call


of_decorator = remembering(computed)


def remembering_last(function):
    last = None

    def call(length):
        nonlocal last
        if last is None:
            last = function(length)
        return last

    return call


of_variable_around = remembering_last(computed)


class Table:
    of_class, by_length = None, {}
    __slots__ = ("rows",)

    def __call__(self, length):
        if not hasattr(self, "rows"):
            self.rows = computed(length)
        return self.rows

    @classmethod
    def kept_by_class(cls, length):
        if cls.of_class is None:
            cls.of_class = computed(length)
        return cls.of_class

    @classmethod
    def kept_in_class(cls, length):
        return cls.by_length.setdefault("kept", computed(length))


class Singleton:
    _instance = None

    def __new__(cls):
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.rows = None
        return cls._instance

    @classmethod
    def kept(cls, length):
        self = cls()
        if self.rows is None:
            self.rows = computed(length)
        return self.rows


class Outer:
    class Inner:
        kept = None

    @property
    def rows(self):
        return self.Inner.kept


def of_inner_class(length):
    if Outer.Inner.kept is None:
        Outer.Inner.kept = computed(length)
    return Outer().rows


def of_local_class():
    class Local:
        kept = None

        def get(self, length):
            if Local.kept is None:
                Local.kept = computed(length)
            return Local.kept

    return Local().get


class Holder:
    def __init__(self):
        self.kept = {}

    def get(self, length):
        return self.kept.setdefault("kept", computed(length))


in_local_class, in_owner_of_method = of_local_class(), Holder().get
of_partial = functools.partial(lambda kept, length: kept.setdefault("kept", computed(length)), {})
del of_local_class

of_slot = Table()
of_class, in_class, of_singleton = Table.kept_by_class, Table.kept_in_class, Singleton.kept

WAYS = {name: value for name, value in vars().items() if name.startswith(("of_", "in_"))}
