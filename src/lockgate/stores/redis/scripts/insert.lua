-- KEYS as add_key has them. ARGV: now, the cap or empty, and the key as add_key has it.
local now = instant(ARGV[1])
if redis.call('HEXISTS', KEYS[1], KEY .. ARGV[3]) == 1 then
  return 'taken'
end
if ARGV[2] ~= '' then
  if redis.call('ZLEXCOUNT', KEYS[2], '(' .. place(now, '\255'), '+') >= tonumber(ARGV[2]) then
    return 'cap'
  end
end
return { add_key(now, 3) }
