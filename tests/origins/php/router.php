<?php
// php -S 127.0.0.1:PORT -t FOLDER router.php: tells which route PHP's own server took for which path.
$path = '/' . ltrim($_SERVER['PATH_INFO'] ?? $_SERVER['SCRIPT_NAME'], '/');
header('X-Path: ' . base64_encode($path));
header('Content-Type: text/plain');
if ($path === '/robots.txt') {
    echo 'robots';
} elseif ($path === '/admin') {
    echo 'admin';
} elseif ($path === '/checkout' || str_starts_with($path, '/checkout/')) {
    echo 'checkout';
} else {
    echo 'other';
}
