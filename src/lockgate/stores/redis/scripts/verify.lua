
local kept = call('HMGET', KEYS[1], ARGV[1], ARGV[2], 'plan')
local usage = kept[2]
if kept[1] ~= ARGV[3] or (kept[3] or '') ~= ARGV[4] then
  return kept
end
if void <= now then
  return write('<Bi8', 3, now) .. (usage or write('<i8i8', 0, 0))
end
