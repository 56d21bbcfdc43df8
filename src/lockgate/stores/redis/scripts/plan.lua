-- The windows of a plan: span, limit (infinite where there is none) and grain of each.
local function plan_of(packed)
  return { struct.unpack('<' .. string.rep('d', #packed / 8), packed) }
end

