<?php

// Part of known.php.
$then();
