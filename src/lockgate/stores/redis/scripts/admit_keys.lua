-- KEYS: the organization, its windows. ARGV: what the process remembers, that is the name of the
-- key's record, that of its usage, the record, where the organization was placed or empty; the
-- request with its plan, void from when the key expires.
--
-- What is remembered is a hint: if anything differs, nothing is counted and the fresh values go back.
local windows, plan = KEYS[2], ARGV[5]
