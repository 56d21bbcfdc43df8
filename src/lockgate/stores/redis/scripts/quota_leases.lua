-- Read the quota leases of an organization without changing anything.
--
-- KEYS: the windows. ARGV: now. Returns the instant and the leases, packed; false if there are none.

-- include: time.lua
-- include: leases_out.lua

local leases = leases_out(KEYS[1])
return leases and { whole_number(instant(ARGV[1])), leases } or false
