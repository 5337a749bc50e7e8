package config

import "time"

// Analytics says what is kept of what was counted, in the data folder.
type Analytics struct {
	// Enabled lets anything be kept. Default true.
	Enabled bool

	// Keep is for how many days there are minutes. A day to a year, in whole days, default 30.
	Keep time.Duration

	// KeepHours is for how many days there are hours. A day to ten years, in whole days, default 365.
	KeepHours time.Duration

	// MaxBytes is how much of the disk they may take. 10 MB to 1 TB, default 1 GB.
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
