package boot

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// This function exists since Windows 10, which Go requires. The interrupt time counts sleep and
// hibernation; the "unbiased" one does not (learn.microsoft.com, realtimeapiset.h). The precise
// version has no steps of 0.5 to 16 ms.
var queryInterruptTime = windows.NewLazySystemDLL("kernelbase.dll").NewProc("QueryInterruptTimePrecise")

func read() (time.Duration, error) {
	if err := queryInterruptTime.Find(); err != nil {
		return 0, fmt.Errorf("the interrupt time cannot be read: %w", err)
	}
	var ticks uint64 // units of 100 ns
	queryInterruptTime.Call(uintptr(unsafe.Pointer(&ticks)))
	return time.Duration(ticks) * 100, nil
}
