-- Precedes scripts that limit a rate, by the generic cell rate algorithm (ITU-T I.371): one number holds the
-- time up to which the rate is used up. Answers the wait for a use of `cost`, and the number after it;
-- `ahead` is the tolerated burst.
local function take(used_up_to, at, cost, ahead)
  local begin = math.max(used_up_to, at)
  return math.max(begin - at - ahead, 0), begin + cost
end
