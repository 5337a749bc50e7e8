package baseline

// These are the documents on which the models are based.
const (
	cloudflare2022 = "Cloudflare Japan, thresholds of Waiting Room (2022)"
	cloudflare2023 = `Cloudflare, "How Waiting Room makes queueing decisions" (2023)`
	criteo         = "Criteo, distributed rate limiting"
	azure          = "Azure, rate limiting pattern"
)
