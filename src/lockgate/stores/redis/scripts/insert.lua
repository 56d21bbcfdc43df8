-- KEYS: the organization, its live keys. ARGV: now, the cap or empty, and the key as add_key has it.
local now = instant(ARGV[1])
if redis.call('HEXISTS', KEYS[1], KEY .. ARGV[3]) == 1 then
  return 'taken'
end
if ARGV[2] ~= '' then
  if redis.call('ZCOUNT', KEYS[2], '(' .. whole_number(now), '+inf') >= tonumber(ARGV[2]) then
    return 'cap'
  end
end
return { add_key(now, 3) }
