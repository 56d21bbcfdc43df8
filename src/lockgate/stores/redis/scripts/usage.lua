-- The verb of usage histories.
--
-- include: usage_marks.lua

-- Replace histories if all are as their writer read them, and keep all of them for some more time.
-- KEYS: the histories of an organization. ARGV: milliseconds; the writer of the batch and its number, or two
-- empty strings; then for each history its field, the value expected or an empty string, and the value to
-- set. Returns 0 if one has another value; 1 if this or an earlier call has counted the batch.
local function replace()
  for at = 4, #ARGV, 3 do
    if (redis.call('HGET', KEYS[1], ARGV[at]) or '') ~= ARGV[at + 1] then
      return 0
    end
  end
  if ARGV[2] ~= '' and not mark(ARGV[2], ARGV[3]) then
    return 1
  end
  for at = 4, #ARGV, 3 do
    redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 2])
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 1
end
