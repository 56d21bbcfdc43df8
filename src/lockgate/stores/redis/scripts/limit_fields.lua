-- The fields of an organization's named limits, in one hash.
local FIELDS_AT_MOST, SWEPT = 10000, 4
local DAY, LIFE, SLACK = 86400000000, 172800000, 3600000 -- In microseconds; two days, an hour in ms.

-- Keep the hash for some milliseconds at least: another field may need it longer. The slack spares most
-- calls the write.
local function keep_for(name, life)
  if redis.call('PTTL', name) < life then
    redis.call('PEXPIRE', name, string.format('%.0f', life + SLACK))
  end
end

-- Drop fields that have been empty for a day, of a few that Redis draws: for a new field.
local function drop_empty_fields(name, now)
  local drawn = redis.call('HRANDFIELD', name, SWEPT, 'WITHVALUES')
  for place = 1, #drawn, 2 do
    local span = tonumber(string.match(drawn[place], '^%S+ (%d+)')) * 1000000
    if struct.unpack('<d', drawn[place + 1], 25) <= now - span - DAY then
      redis.call('HDEL', name, drawn[place])
    end
  end
end
