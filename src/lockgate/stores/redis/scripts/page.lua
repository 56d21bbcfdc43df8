-- The records and the usage of keys, by the members of an index.
local function read_keys(members)
  if #members == 0 then
    return {}
  end
  local fields = {}
  for at, member in ipairs(members) do
    local id = string.sub(member, 17)
    fields[2 * at - 1], fields[2 * at] = KEY .. id, 'use ' .. id
  end
  return redis.call('HMGET', KEYS[1], unpack(fields))
end
