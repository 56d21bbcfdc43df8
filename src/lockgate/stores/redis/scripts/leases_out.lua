-- include: window_state.lua

-- Return the quota leases in the state of an organization's windows, packed, and its tag; nil if there
-- are none.
local function leases_out(windows)
  local kept = redis.call('GET', windows)
  local tag = kept and struct.unpack('<I2', kept, TAG) or 0
  if tag % 256 < LEASED then
    return
  end
  if tag % PROMISED > FORMAT + WIDE then
    error('window state of format ' .. tag)
  end
  local from = HEADS + HEAD * math.floor(tag / 256)
  for after = HEADS + HEAD, from, HEAD do
    from = from + struct.unpack('<d', kept, after - 8)
  end
  if tag % LEASED >= PROMISED then
    from = from + 8 + struct.unpack('<d', kept, from)
  end
  return string.sub(kept, from), tag
end
