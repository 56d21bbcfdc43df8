-- What copies of an organization are held by, or nothing if there are none. Keys without a fence are no
-- copies: somebody uses the same names for a store of its own, and would lose them.
local function fence_of(organization)
  local fence = redis.call('HGET', organization, 'fence')
  if not fence and redis.call('EXISTS', organization) == 1 then
    error('keys that are no copies')
  end
  return fence
end
