package config

import "time"

// Analytics configures how long statistics are kept in the data folder.
type Analytics struct {
	// Enabled stores statistics on disk. Default true.
	Enabled bool

	// Keep is how long per-minute statistics are kept. A day to a year, in whole days, default 30.
	Keep time.Duration

	// KeepHours is how long hourly statistics are kept. A day to ten years, in whole days, default
	// 365.
	KeepHours time.Duration

	// MaxBytes is how much disk space the statistics may take. 10 MB to 1 TB, default 1 GB.
	MaxBytes int64
}

func defaultAnalytics() Analytics {
	return Analytics{Enabled: true, Keep: 30 * day, KeepHours: 365 * day, MaxBytes: 1 << 30}
}

func analyticsFields(a *Analytics) []field {
	const year = 366 * day
	return []field{
		one("enabled", truth(&a.Enabled)),
		one("keep", span(&a.Keep, day, year, false)),
		one("keep_hours", span(&a.KeepHours, day, 10*year, false)),
		one("max_bytes", whole(&a.MaxBytes, 10<<20, 1<<40)),
	}
}
