-- Where the parts of the state of an organization's windows are (sliding_window.lua).
local FORMAT, WIDE, PROMISED, LEASED = 2, 1, 64, 128 -- The tag: see there.
local TAG, IDS, HEADS = 26, 52, 260 -- Where they start.
local ID, HEAD, LEASE = 13, 40, 32 -- Their sizes in bytes.
