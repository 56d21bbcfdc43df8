-- Compare the key hint with the record, which an admission by a key begins with. Takes the locals of
-- request.lua, KEYS[1] and ARGV[1] to ARGV[4]; leaves usage.
local EXPIRED = 3
local NO_USAGE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

local kept = call('HMGET', KEYS[1], ARGV[1], ARGV[2], 'plan')
local usage = kept[2]
if kept[1] ~= ARGV[3] or (kept[3] or '') ~= ARGV[4] then
  return kept
end
if expires_at <= now then
  return write('<Bi8', EXPIRED, now) .. (usage or NO_USAGE)
end
