"""Time for a busy machine in the processes of the tests: Python imports this module as it starts.

The files that such a process runs are documentation, where a gate has the default deadline.
"""

from typing import Any

from lockgate.options import StoreOptions

defaults: Any = StoreOptions.__init__.__kwdefaults__
defaults["deadline"] = 30.0
