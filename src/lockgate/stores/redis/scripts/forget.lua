-- KEYS: the organization.
if fence_of(KEYS[1]) then
  redis.call('DEL', KEYS[1])
end
return 1
