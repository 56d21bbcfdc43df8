-- The verb of usage histories.

-- Replace histories that are as their writer read them, and keep all of them for some more time.
-- KEYS: the histories of an organization. ARGV: milliseconds; then for each history its field, the value
-- expected or an empty string, and the value to set. Returns the fields that had another value.
local function replace()
  local changed = {}
  for at = 2, #ARGV, 3 do
    if (redis.call('HGET', KEYS[1], ARGV[at]) or '') == ARGV[at + 1] then
      redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 2])
    else
      changed[#changed + 1] = ARGV[at]
    end
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return changed
end
