-- KEYS as add_key has them. ARGV: the instant since which the account must be unused.
-- Gives 'removed', 'gone' if it was removed before, 'never' if it cannot be removed, or the instant of
-- its latest use.
local account = account_of(KEYS[1])
if not account then
  return 'gone'
end
if account[CLAIMED_BY] ~= '' or redis.call('HEXISTS', KEYS[1], 'plan') == 1 then
  return 'never'
end
local latest = math.max(tonumber(account[CREATED]), tonumber(account[SIGNED_IN]) or 0)
local kept, mine = redis.call('HGETALL', KEYS[1]), { 'account' }
for at = 1, #kept, 2 do
  local kind = string.sub(kept[at], 1, #KEY)
  if kind == KEY then
    latest = math.max(latest, tonumber((string.match(kept[at + 1], RECORD))))
  elseif kind == 'use ' then
    local requests, last = struct.unpack('<i8i8', kept[at + 1])
    latest = math.max(latest, requests > 0 and last or 0)
  end
  if kind == KEY or kind == 'use ' then
    mine[#mine + 1] = kept[at]
  end
end
if latest > tonumber(ARGV[1]) then
  return whole_number(latest)
end
for at = 1, #mine do
  redis.call('HDEL', KEYS[1], mine[at])
end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
return 'removed'
