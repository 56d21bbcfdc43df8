-- Changes of a key or a plan, after which older quota leases have to end (D42).
--
-- include: time.lua
-- include: leases_out.lua

-- Make a change, and return its answer, the server's clock, and the quota leases that are out, packed;
-- false in their place if they cannot be read, which does not undo the change.
-- KEYS: those of the change, and the windows as the last. ARGV: those of the change.
local function with_leases(change)
  local answer = change()
  local is_read, leases = pcall(leases_out, KEYS[#KEYS])
  return { answer, whole_number(instant('')), is_read and (leases or '') }
end
