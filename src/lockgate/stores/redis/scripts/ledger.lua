-- Steps about the ledger of an organization as a whole: a script calls one of these functions.
--
-- include: change_log.lua
-- include: leases_out.lua

-- Read the quota leases without changing anything.
-- KEYS: the windows. ARGV: now. Returns the instant and the leases, packed; false if there are none.
local function quota_leases()
  local leases = leases_out(KEYS[1])
  return leases and { whole_number(instant(ARGV[1])), leases } or false
end

-- Empty the windows, and keep the quota leases that are out.
-- KEYS: the organization, its windows, its named limits. ARGV: now, the text for the change log or empty, the
-- organization's id.
local function reset()
  local leases, tag = leases_out(KEYS[2])
  redis.call('DEL', KEYS[3])
  if leases then
    local number = math.floor(tag / 256)
    local front = string.rep('\0', TAG - 1) .. struct.pack('<I2', FORMAT + LEASED + 256 * number)
    local heads = string.rep('\0', HEADS + HEAD * number - TAG - 2)
    redis.call('SET', KEYS[2], front .. heads .. leases, 'KEEPTTL')
  else
    redis.call('DEL', KEYS[2])
  end
  if ARGV[2] ~= '' then
    log_change(instant(ARGV[1]), ARGV[2])
    -- The walk that removes old records names an organization by it, also one without keys.
    redis.call('HSET', KEYS[1], 'id', ARGV[3])
  end
  return 1
end
